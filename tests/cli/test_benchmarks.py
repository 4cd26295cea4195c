"""The benchmarks: floors of losses and metrics, parts of a step, bucketed AP-Loss, bytes sent."""

import csv
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from gloo_processes import run_on_ranks
from subjects import loss_names

import mmrank.losses
import timing
from bucketed_ap import bucketed_ap_loss, exact_ap_loss, make_logits
from mmrank.errors import UserError
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
from mmrank.registry import METRICS, MODELS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / 'tools/benchmarks'))
import floors  # noqa: E402
import wire  # noqa: E402
from lower_bounds.row import QUICK, Sizes  # noqa: E402

#: Bases of losses, and what calls one: they compute nothing themselves.
BASES = {
    *('ClassCountLoss', 'ContrastiveLoss', 'EmbeddingLoss', 'ErrorDrivenLoss'),
    *('HeadLoss', 'PointwiseLoss', 'RankingLoss', 'StatelessRankingLoss'),
}
#: The row of AP-Loss on scores.
PLAIN = 'APLoss (quality=0)'


def test_every_loss_and_metric_has_a_row():
    rows = {row.name for row in floors.all_rows(Sizes())}
    METRICS.import_from_location()
    # Other tests register losses of their own.
    losses = {x for x in loss_names() if not x.startswith('_')}
    # CocoMetric is mmdet's but for its evaluator.
    assert rows == {*losses, *METRICS.module_dict} - {'CocoMetric'}
    exported = {x for x in mmrank.losses.__all__ if x.endswith('Loss')}
    assert exported - rows == BASES
    assert not BASES & {*MODELS.module_dict}


@pytest.fixture
def single_calls(monkeypatch):
    """A turn is one call, not as many as last 20 ms."""
    monkeypatch.setattr(timing, 'TURN', 0.0)


@pytest.mark.parametrize(
    'row', floors.all_rows(QUICK), ids=lambda row: f'{row.name}-{row.setting}'.replace(' ', '_')
)
def test_sides_of_a_row_run(row, single_calls):
    for line in floors.measure(row, 1):
        assert line[0].startswith(row.name)
        figures = [x for x in line if isinstance(x, float)]
        assert len(figures) == (4 if line[7] == '' else 7)
        assert min(figures) > 0


def test_table_is_shown_and_written(tmp_path, capsys, monkeypatch, single_calls):
    monkeypatch.setenv('COLUMNS', '200')
    words = ['--only', 'APLoss', 'TopKMetric', '--quick', '--repeats', '2']
    words += ['--size', 'rows=40', '--out', str(tmp_path / 'floors')]
    monkeypatch.setattr(sys, 'argv', ['floors.py', *words])
    floors.main()
    assert '40 x 3 scores' in capsys.readouterr().out
    with open(tmp_path / 'floors.csv', newline='') as file:
        rows = [*csv.DictReader(file)]
    assert {x['loss or metric'] for x in rows} == {PLAIN, 'APLoss (retrieval)', 'TopKMetric'}
    peers = [x['peer'] for x in rows if x['loss or metric'] == PLAIN]
    assert peers == ['cross-entropy']
    for row in rows:
        ratio = float(row['ours, CPU ms']) / float(row['floor, CPU ms'])
        assert 0.2 < ratio / float(row['x floor, CPU']) < 5
    assert (tmp_path / 'floors.md').read_text().startswith('# Losses')


def test_memory_holds_the_gradient(capsys, monkeypatch):
    words = '--only StableAPLoss --memory --size rows=5000 classes=10 positives=50'
    monkeypatch.setattr(sys, 'argv', ['floors.py', *words.split()])
    floors.main()
    # The gradient has 0.2 MB.
    row = r'│ StableAPLoss quality=0 +│ +5000 x 10 [^│]*│ +(0\.[2-9]|1\.)'
    assert re.search(row, capsys.readouterr().out)


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        ('--size nothing=3', 'is not NAME=VALUE'),
        ('--repeats 0', '--repeats must be at least 1'),
        ('--memory --out x', '--memory writes no files'),
    ],
)
def test_wrong_options_are_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        floors.parse_args(words.split())
    assert said in capsys.readouterr().err


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match='--only Nothing: there is no such'):
        floors.chosen_rows(floors.all_rows(QUICK), ['Nothing', 'APLoss'])


PARTS = r' +│ +'.join([r'(\d+\.\d)'] * 6 + [r'(\d\.\d{3})'])


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['detector', 'retriever', 'plan'])
def test_parts_of_a_training_step(kind, run, monkeypatch):
    monkeypatch.chdir(ROOT)
    pytest.importorskip('mmdet' if kind == 'detector' else 'mmpretrain')
    words = '--batch-size 8 --repeats 3 --threads 1 --image-size 64 64'
    if kind == 'retriever':
        configs = (f'configs/{x}_ap/conv4_{x}-ap_omniglot.py' for x in ('smooth', 'stable'))
        words = ' '.join([*configs, words.replace('64', '28')])
    elif kind == 'plan':
        words = '--plan tools/research/papers/stable_ap/table3.yaml --set small --repeats 2'
    out = run('benchmarks/training_step', words)
    rows = [[float(x) for x in row] for row in re.findall(PARTS, out)]
    assert len(rows) == (5 if kind == 'plan' else 2)
    for network, loss, backward, optimiser, total, share, _ in rows:
        assert min(network, loss, backward) > 0
        assert total == pytest.approx(network + loss + backward + optimiser, abs=0.21)
        assert share == pytest.approx(100 * loss / total, abs=3)
    assert rows[0][-1] == 1


@pytest.mark.parametrize('delta', [1e-6, 0.5])
def test_the_bucketed_loss_is_the_exact_one_of_negatives_at_the_mean_of_their_bucket(delta):
    logits, is_positive = make_logits(300, 20)
    logits = logits.double()
    loss, update = bucketed_ap_loss(logits, is_positive, delta)
    positives = logits[is_positive]
    bucket = (logits[:, None] < positives).sum(1)
    kept = ~is_positive & (logits >= positives.min() - delta)
    moved = logits.clone()
    for number in bucket[kept].unique():
        members = kept & (bucket == number)
        moved[members] = logits[members].mean()
    exact, expected = exact_ap_loss(moved, is_positive, delta)
    torch.testing.assert_close(loss, exact)
    torch.testing.assert_close(update, expected)
    # Between the scores a step sees no difference.
    if delta < 0.5:
        torch.testing.assert_close(update, exact_ap_loss(logits, is_positive, delta)[1])


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


def test_the_table_of_bytes_is_on_the_page():
    assert wire.table() in (ROOT / 'docs/pages/scaling.md').read_text('utf-8')
