"""Training and evaluation on two gloo processes equal one process.

Data set, sampler, model, DistributedDataParallel and metric together.
"""

import torch
from gloo_processes import run_on_ranks
from mmengine.dataset import DefaultSampler
from small_models import table
from torch.nn.parallel import DistributedDataParallel

from mmrank.datasets import InteractionDataset, TopKDataset
from mmrank.datasets.samplers import InBatchPairSampler
from mmrank.evaluation.top_k_metric import TopKMetric
from mmrank.models import TwoTower

CASES = [
    (
        'in_batch',
        InBatchPairSampler,
        dict(batch_size=10),
        dict(type='mmrank.InBatchLoss', pointwise='logistic'),
    ),
    (
        'in_batch',
        InBatchPairSampler,
        dict(batch_size=10, num_uniform=4),
        dict(type='mmrank.InBatchSoftmaxLoss', tau=0.5, refined=True),
    ),
    (
        'sogram',
        InBatchPairSampler,
        dict(batch_size=10),
        dict(type='mmrank.InBatchLoss', mode='sogram'),
    ),
]


def _train(folder, sampling, sampler, setting, loss):
    torch.manual_seed(0)
    dataset = InteractionDataset(folder / 'train.csv', sampling)
    pairs = dataset.interactions
    towers = [table(n, 3) for n in pairs.shape]
    model = TwoTower(*towers, loss, top_k=3).double()
    model.pair_loss.set_pairs(pairs.rows, pairs.cols, pairs.shape)
    wrapped = model
    if torch.distributed.is_initialized():
        wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    stream = sampler(dataset, seed=5, infinite=True, **setting)
    for number in range(4):
        batch = dataset.__getitems__(stream.rank_batch(number))
        optimizer.zero_grad()
        wrapped(mode='loss', **batch)['loss'].backward()
        optimizer.step()
    return model


def _evaluate(folder, model):
    dataset = TopKDataset(folder / 'test.csv', folder / 'train.csv')
    metric = TopKMetric(k=(1, 3))
    model.eval()
    indices = list(DefaultSampler(dataset, shuffle=False))
    for begin in range(0, len(indices), 2):
        batch = dataset.__getitems__(indices[begin : begin + 2])
        metric.process(batch, model(mode='predict', **batch))
    return torch.tensor(list(metric.evaluate(len(dataset)).values()))


def _results(folder):
    results = []
    for case in CASES:
        model = _train(folder, *case)
        results += [*model.parameters(), _evaluate(folder, model)]
    return results


def _on_rank(rank, folder):
    return _results(folder)


def test_two_ranks_equal_one_process(tmp_path):
    g = torch.Generator().manual_seed(2)
    labels = torch.rand(9, 8, generator=g)
    labels[torch.arange(9), torch.arange(9) % 8] = 0
    for name, chosen in (('train', labels < 0.4), ('test', labels > 0.85)):
        lines = [f'{i},{j}\n' for i, j in chosen.nonzero().tolist()]
        (tmp_path / f'{name}.csv').write_text(''.join(lines))
    # An odd number of users: the sampler of the second rank repeats one.
    assert len(TopKDataset(tmp_path / 'test.csv', tmp_path / 'train.csv')) % 2
    expected = _results(tmp_path)
    assert expected[2].max() > 0
    for results in run_on_ranks(_on_rank, 2, tmp_path):
        for x, y in zip(results, expected, strict=True):
            torch.testing.assert_close(x, y.detach(), rtol=1e-9, atol=1e-12)
