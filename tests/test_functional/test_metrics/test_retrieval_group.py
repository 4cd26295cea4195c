"""Ranks of a process group share the work and get the same figures."""

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

from mmrank.functional import retrieval_curves, retrieval_metrics

pytestmark = pytest.mark.processes

# Blocks of a few queries each, so that every rank has some.
LIMIT = 250_000


def make_set(samples=203):
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(11, (samples,), generator=g)
    labels[0] = 99  # a query without a positive
    return torch.randn(samples, 7, generator=g), labels


CASES = ('curves', 'gallery', 'several labels', 'one block', 'nothing')


def compute(name, **options):
    torch.set_num_threads(1)
    x, labels = make_set()
    if name == 'curves':
        options['memory_limit'] = LIMIT
        curves = retrieval_curves(x, labels, **options)
        return [*curves.figures, curves.precision]
    if name == 'several labels':
        several = torch.nn.functional.one_hot(labels % 11, 12).bool()
        return retrieval_metrics(x, several | several.roll(1, 0), memory_limit=LIMIT, **options)
    if name == 'gallery':
        options['memory_limit'] = LIMIT
        return retrieval_metrics(x[1:91], labels[1:91], x, labels, **options)
    if name == 'one block':
        return retrieval_metrics(x, labels, **options)
    return retrieval_metrics(x[:1], labels[:1], **options)


def _rank_figures(rank):
    return [x for name in CASES for x in compute(name, group=dist.group.WORLD)]


@pytest.mark.parametrize('ranks', [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_equal_one_process_bit_for_bit(ranks):
    threads = torch.get_num_threads()
    try:
        expected = [x for name in CASES for x in compute(name)]
    finally:
        torch.set_num_threads(threads)
    for result in run_on_ranks(_rank_figures, ranks):
        for found, value in zip(result, expected, strict=True):
            torch.testing.assert_close(found, value, rtol=0, atol=0, equal_nan=True)
