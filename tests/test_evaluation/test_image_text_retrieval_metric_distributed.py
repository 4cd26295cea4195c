"""IR@K and TR@K over ranks; apart, since every process imports this file."""

import torch
from gloo_processes import run_on_ranks

from mmrank.evaluation.image_text_retrieval_metric import ImageTextRetrievalMetric

SIZE = 23


def evaluate(chosen, merge_texts):
    g = torch.Generator().manual_seed(0)
    images = torch.randn(SIZE, 6, generator=g)
    counts = torch.randint(0, 4, (SIZE,), generator=g).tolist()
    metric = ImageTextRetrievalMetric((1, 5), merge_texts, device='cpu')
    samples = []
    for i, count in enumerate(counts):
        noise = torch.randn(count, 6, generator=g)
        samples.append(
            dict(
                image_feature=images[i],
                text_feature=images[i] + noise,
                text_id=[(i + k) % 9 for k in range(count)],
            )
        )
    metric.process(None, [samples[i] for i in chosen])
    return torch.tensor(list(metric.evaluate(SIZE).values()))


def on_rank(rank):
    # As the sampler gives them: in turns, the last one padded.
    chosen = [i % SIZE for i in range(rank, SIZE + 1, 2)]
    return [evaluate(chosen, merge_texts) for merge_texts in (False, True)]


def test_ranks_equal_one_process():
    expected = [evaluate(range(SIZE), x) for x in (False, True)]
    assert 0 < expected[0][0] < 100
    assert expected[0][0] != expected[1][0]
    for results in run_on_ranks(on_rank, 2):
        for got, whole in zip(results, expected):
            torch.testing.assert_close(got, whole)
