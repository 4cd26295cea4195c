"""The theory tools write what their help promises."""

import csv
import importlib.util
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from research import federated_cost
from research.federated_cost import ARMS, CLASSES, RARE, make_boxes, rare_class_ap

TOOLS = Path(__file__).parents[2]
STABLE_AP = dict(type='mmrank.StableAPLoss', mode='per_class')
# As the defaults, but of a size for a test.
SMALL = {
    'soprc_simulation': dict(
        RATES=(0.02, 0.5), SIZE=60, SIZES=(20, 60), NUMS_SCORES=(20, 30), MOMENTA=(0.5,)
    ),
    'stable_ap_bounds': dict(
        RHOS=(1.0, 2.0), NUMS_POS=(2, 4), NUMS_WEIGHTS=(2, 4), NUMS_SAMPLES=(4, 8), STEPS=20
    ),
}
FILES = {
    'soprc_simulation': (['sampling_rate_bias', 'interpolation_error', 'score_vector'], []),
    'stable_ap_bounds': (
        ['theorem1', 'bounded_difference', 'mean_score_tracking'],
        ['theorem1_weights'],
    ),
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize('name', FILES)
def test_tool_writes_figures_and_tables(name, tmp_path, monkeypatch):
    tool = load(name)
    for constant, value in SMALL[name].items():
        assert hasattr(tool, constant)
        monkeypatch.setattr(tool, constant, value)
    arguments = ['--trials', '3', '--out-dir', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', [name, *arguments])
    assert not tool.main()
    figures, tables = FILES[name]
    pictures = ['densities'] if name == 'soprc_simulation' else []
    for file in figures + pictures:
        size = (tmp_path / f'{file}.png').stat().st_size
        assert 5_000 < size < 150_000
    for file in figures + tables:
        lines = (tmp_path / f'{file}.md').read_text('utf-8').splitlines()
        text = (tmp_path / f'{file}.csv').read_text('utf-8')
        rows = list(csv.DictReader(text.splitlines()))
        borders = [x.replace('\\|', '').count('|') for x in lines if x[:2] == '| ']
        assert borders == [len(rows[0]) + 1] * (len(rows) + 1)
        for row in rows:
            assert 'nan' not in row.values()


def test_bounds_tool_fails_where_a_bound_does_not_hold(tmp_path, monkeypatch):
    tool = load('stable_ap_bounds')
    for constant, value in SMALL['stable_ap_bounds'].items():
        monkeypatch.setattr(tool, constant, value)
    monkeypatch.setattr(tool, 'bounded_difference', lambda *_: (tmp_path, 1.01))
    arguments = ['--trials', '2', '--out-dir', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['tool', *arguments])
    assert tool.main() == 1


@pytest.mark.parametrize(
    ('name', 'arguments', 'message'),
    [
        ('soprc_simulation', ['--trials', '1'], '--trials must be at least 2'),
        ('soprc_simulation', ['--prior', '1'], '--prior must be in (0, 1)'),
        ('stable_ap_bounds', ['--trials', '0'], '--trials must be at least 2'),
    ],
)
def test_bad_arguments_are_named(name, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [name, *arguments])
    with pytest.raises(SystemExit):
        load(name).parse_args()
    assert message in capsys.readouterr().err


def test_cost_of_federated_annotations_is_written(tmp_path, monkeypatch):
    plan = str(TOOLS / 'federated.yaml')
    monkeypatch.setattr(federated_cost, 'rare_class_ap', partial(rare_class_ap, steps=1))
    monkeypatch.setattr(sys, 'argv', ['federated_cost', plan, '--out', str(tmp_path)])
    assert federated_cost.main() == 0
    for name in ('federated', 'federated_same_look'):
        with open(tmp_path / f'{name}.csv') as lines:
            rows = list(csv.DictReader(lines))
        assert [(row['method'], row['seed']) for row in rows] == [
            (arm, seed) for seed in '01234' for arm in ARMS
        ]
        assert all(0 < float(row[key]) <= 1 for row in rows for key in ('rare', 'others'))


def test_half_of_the_rare_class_is_not_annotated():
    boxes = make_boxes(torch.Generator().manual_seed(0))
    is_rare = boxes.labels == RARE
    known = boxes.annotated == RARE
    assert is_rare.sum() == 2 * known.sum()
    assert not (known & ~is_rare).any()
    others = boxes.labels != RARE
    assert boxes.annotated[others].equal(boxes.labels[others])
    # Where a rare box is not annotated nothing is said of its class.
    labels = [meta['exhaustive_labels'] for meta in boxes.metas]
    silent = {i for i, own in enumerate(labels) if RARE not in own}
    unknown = boxes.images[is_rare & ~known].unique().tolist()
    assert silent.issuperset(unknown)
    assert not silent.intersection(boxes.images[known].tolist())
    verified = set(range(len(labels))) - silent
    assert len(verified) > boxes.images[known].unique().numel()
    assert all(own[-CLASSES + 1 :] == [1, 2, 3] for own in labels)


@pytest.mark.slow
def test_the_mask_keeps_what_unverified_negatives_cost():
    for seed in range(3):
        every, masked, unmasked = (rare_class_ap(arm, seed, STABLE_AP) for arm in ARMS)
        # AP of the rare class by 8 points or more; the others are alike.
        assert masked[0] > unmasked[0] + 0.08
        assert masked[0] > every[0] - 0.1
        assert abs(masked[1] - unmasked[1]) < 0.01


def test_missing_annotations_may_have_the_same_look():
    g = torch.Generator()
    one, other = (make_boxes(g.manual_seed(1), same_look=same) for same in (True, False))
    assert one.labels.equal(other.labels)
    moved = (one.features != other.features).any(1)
    assert moved.equal((one.labels == RARE) & (one.annotated != RARE))
