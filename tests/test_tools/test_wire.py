"""The bytes that wire.py computes are those of the collectives; its table is on the page."""

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks

from mmrank.losses import (
    CLIPLoss,
    EmbeddingLoss,
    InfoNCELoss,
    ISogCLRLoss,
    ListwiseAPLoss,
    RecallAtKLoss,
    SmoothAPLoss,
    SogCLRLoss,
    SOPRCLoss,
    StableAPLoss,
)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tools/benchmarks'))
import wire  # noqa: E402

BATCH, WIDTH, POSITIVES = 64, 16, 50


def collectives_of(loss, *inputs):
    """Kind and bytes of the tensor of each collective of a step."""
    found = []
    whole = dict(reduce=dist.all_reduce, gather=dist.all_gather)

    def reduce(values, *args, **options):
        found.append(('reduce', values.nbytes))
        return whole['reduce'](values, *args, **options)

    def gather(parts, values, *args, **options):
        found.append(('gather', values.nbytes))
        return whole['gather'](parts, values, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, 'all_reduce', reduce)
        patch.setattr(dist, 'all_gather', gather)
        loss(*inputs).backward()
    return found


def measured_and_computed(rank, world):
    """For each loss bytes that a process sends, as counted and as computed."""
    torch.manual_seed(rank)
    scores = torch.randn(500, requires_grad=True)
    is_positive = torch.arange(500) < POSITIVES
    views = torch.randn(2, BATCH, WIDTH, requires_grad=True)
    ids = torch.arange(BATCH) + BATCH * rank
    classes = torch.arange(BATCH) % (BATCH // 4)
    known = 4 * BATCH
    of_views = wire.contrast(world, BATCH, WIDTH)
    of_ids = dict(
        average=(SogCLRLoss(known), wire.contrast(world, BATCH, WIDTH, 2)),
        temperatures=(ISogCLRLoss(known), wire.contrast(world, BATCH, WIDTH, 3)),
        own=(SogCLRLoss(known, scope='local'), wire.own_negatives(world, BATCH, 2)),
        none=(InfoNCELoss(), of_views),
        learnt=(CLIPLoss(), of_views),
    )
    found = {}
    for name, (loss, computed) in of_ids.items():
        found[name] = collectives_of(loss, *views, ids), computed
    for kind in (StableAPLoss, SmoothAPLoss, SOPRCLoss, ListwiseAPLoss):
        computed = wire.ranking(world, POSITIVES)
        found[kind.__name__] = collectives_of(kind(), scores, is_positive), computed
    for kind in (StableAPLoss, SmoothAPLoss, RecallAtKLoss):
        computed = wire.search(world, BATCH, WIDTH, 4)
        counted = collectives_of(EmbeddingLoss(kind()), views[0], classes)
        found[f'search {kind.__name__}'] = counted, computed
    return {name: [wire.sent(world, x) for x in pair] for name, pair in found.items()}


@pytest.mark.processes
@pytest.mark.parametrize('world', [2, 4])
def test_computed_bytes_are_sent(world):
    for found in run_on_ranks(measured_and_computed, world, world):
        for name, (counted, computed) in found.items():
            if name == 'ListwiseAPLoss':
                assert counted <= computed
            else:
                # A few numbers of one loss or another, such as the count of the negatives.
                assert counted == pytest.approx(computed, rel=0.05), name


def test_table_is_on_the_page():
    assert wire.table() in (ROOT / 'docs/pages/scaling.md').read_text('utf-8')
