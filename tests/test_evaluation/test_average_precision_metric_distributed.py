"""AP and AUROC over ranks; apart, since every process imports this file."""

import torch
from gloo_processes import run_on_ranks

from mmrank.evaluation.average_precision_metric import AveragePrecisionMetric

SIZE = 33


def evaluate(chosen):
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(SIZE, 3, generator=g)
    target = torch.rand(SIZE, 3, generator=g) < 0.3
    metric = AveragePrecisionMetric()
    metric.process(None, [dict(pred_score=scores[i], gt_score=target[i].float()) for i in chosen])
    return torch.tensor(list(metric.evaluate(SIZE).values()))


def on_rank(rank):
    # As the sampler gives them: in turns, the last one padded.
    return [evaluate([i % SIZE for i in range(rank, SIZE + 1, 2)])]


def test_ranks_equal_one_process():
    expected = evaluate(range(SIZE))
    for (got,) in run_on_ranks(on_rank, 2):
        torch.testing.assert_close(got, expected)
