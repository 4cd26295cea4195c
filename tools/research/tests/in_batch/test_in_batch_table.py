"""The table of the study of in-batch losses, and the curves of its objective."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from mmengine.config import Config

import two_towers
from in_batch.plots import train_in_turn
from in_batch.training import TwoTowerData
from make_interactions import InteractionsSpec, write_interactions

ROOT = Path(__file__).parents[4]


@pytest.fixture
def config(run, tmp_path):
    """A config of the made-up data that its tool writes."""
    pairs = tmp_path / 'pairs'
    out = run(
        'dataset_converters/make_interactions',
        *(pairs, '--users', 40, '--items', 30, '--per-user', 6),
    )
    assert '40 users, 30 items' in out
    base = ROOT / 'configs/in_batch/two-tower8_unbiased-logistic_synthetic.py'
    path = tmp_path / 'config.py'
    path.write_text(
        f'_base_ = {str(base)!r}\n'
        f'root = {str(pairs)!r}\n'
        'model = dict(left=dict(num_entities=40),\n'
        '             right=dict(num_entities=30))\n'
        'train_dataloader = dict(dataset=dict(data_root=root))\n'
        'val_dataloader = dict(dataset=dict(data_root=root))\n'
    )
    return path


@pytest.mark.slow
def test_table_is_written_and_goes_on(run, config, tmp_path):
    plan = yaml.safe_load((ROOT / 'tools/research/in_batch_small.yaml').read_text('utf-8'))
    plan.update(data=str(config))
    for cell in plan['methods']:
        cell.update(max_steps={0.1: 6}, max_iterations=5)
        if 'batch_ratio' in cell['each']:
            cell['each']['batch_ratio'] = [0.1]
        if 'sampled' in cell['name']:
            cell['each']['mode'] = ['pos_neg']
    path = tmp_path / 'plan.yaml'

    def make(*cells):
        path.write_text(yaml.safe_dump(plan | dict(methods=[*cells])), 'utf-8')
        return run('research/in_batch_table', *(path, '--out', tmp_path, '--threads', 1))

    sampled = [x for x in plan['methods'] if 'sampled' in x['name']]
    out = make(*sampled)
    assert '0 cells are there, 2 are missing' in out
    assert re.search(r'\[2/2\] sampled/logistic/pos_neg/0.1: P@5', out)
    with (tmp_path / 'results.csv').open() as file:
        cells = [json.loads(x['result']) for x in csv.DictReader(file)]
    with (tmp_path / 'sampled.csv').open() as file:
        table = list(csv.reader(file))
    heads = [f'{x} {y}' for x in
             ('P@1', 'P@5', 'P@25', 'R@1', 'R@5', 'R@25')
             for y in ('SQ', 'LR')]  # fmt: skip
    assert table[0] == ['loss', 'batch ratio', *heads]
    assert [x[:2] for x in table[1:]] == [['Pos-Neg', '0.1']]
    best = cells[1]['best']['top_k/precision@1']
    assert table[1][3] == f'{best:.2f}'
    assert all(x['steps'] == 6 for x in cells)
    assert 'max_steps' in (tmp_path / 'cells.md').read_text()

    # As after an interruption: only what is missing is trained.
    lines = (tmp_path / 'results.csv').read_text().splitlines(keepends=True)
    (tmp_path / 'results.csv').write_text(lines[0] + lines[1])
    sampled[0]['each']['mode'] = ['pos_neg', 'unbiased_omega']
    out = make(*(x for x in plan['methods'] if x['pointwise'] == 'square'))
    assert '1 cells are there, 5 are missing' in out
    assert out.count('P@5') == 5
    full = (tmp_path / 'full_gradient.md').read_text()
    assert '| Pos-Neg-omega | 0.1 |' in full
    assert '| In-Batch-omega | 0.1 |' in full
    picture = (tmp_path / 'precision_at_5.png').read_bytes()
    assert picture.startswith(b'\x89PNG')


def test_objective_curves_are_those_of_the_trainings(run, config, tmp_path):
    """Both losses estimate one objective, from the same weights."""
    out = run(
        'research/in_batch_objective',
        *(config, '--ratio', 0.1, '--steps', 4, '--every', 2),
        *('--lr', 0.05, 0.5, '--out-dir', tmp_path),
    )
    rows = re.findall(r'│ (square|logistic) +│ (\w+) +│ ([\d.]+) +│ ([\d.]+) ', out)
    assert [x[:2] for x in rows] == [
        (p, m) for p in ('square', 'logistic') for m in ('unbiased', 'sogram')
    ]
    for unbiased, sogram in zip(rows[::2], rows[1::2]):
        assert unbiased[2] == sogram[2]
        assert unbiased[3] != sogram[3]
        assert float(unbiased[3]) < float(unbiased[2])
    assert (tmp_path / 'objective.png').stat().st_size > 5_000


def test_trainings_in_turn_are_those_alone(config):
    data = TwoTowerData(Config.fromfile(config))
    losses = {
        mode: dict(type='mmrank.InBatchLoss', mode=mode, pointwise='square')
        for mode in ('unbiased', 'sogram')
    }
    both = train_in_turn(data, losses, 20, 0.05, 4, 2)
    for mode, loss in losses.items():
        alone = train_in_turn(data, {mode: loss}, 20, 0.05, 4, 2)[mode]
        assert both[mode].steps == alone.steps == [0, 2, 4]
        assert both[mode].values == alone.values
        assert both[mode].metrics == alone.metrics


def test_sizes_of_the_data(run, config, tmp_path):
    out = run('research/in_batch_objective', config, '--sizes')
    row = re.search(r'│ ([\d,]+) +│ ([\d,]+) +│ ([\d,]+) +│ ([\d,.]+)', out)
    m, n, pairs, popularity = (float(x.replace(',', '')) for x in row.groups())
    assert (m, n) == (40, 30)
    # Every user has as many, so the mean over users and items is a product.
    assert popularity == pytest.approx(pairs / m * pairs / n, abs=0.06)


def test_record_of_two_towers_is_tuned_alike_and_gone_on_with(tmp_path, monkeypatch):
    write_interactions(tmp_path, InteractionsSpec(40, 30, per_user=8))
    plan = yaml.safe_load((ROOT / 'tools/research/two_towers.yaml').read_text('utf-8'))
    plan.update(data=str(tmp_path), steps=2, batch_size=12)
    plan['tune']['grid'] = dict(lr=[0.5, 0.25])
    names = ['softmax, refined logQ, mixed', 'sogram, square']
    plan['methods'] = [x for x in plan['methods'] if x['name'] in names]
    plan['methods'][0]['uniform'] = 8
    path = tmp_path / 'plan.yaml'

    def run(*seeds):
        path.write_text(yaml.safe_dump(plan | dict(seeds=[*seeds])), 'utf-8')
        monkeypatch.setattr(sys, 'argv', ['two_towers.py', str(path), str(tmp_path)])
        two_towers.main()
        return list(csv.DictReader((tmp_path / 'plan.csv').read_text().splitlines()))

    first = run(0)
    assert [(row['stage'], row['method']) for row in first] == [
        *(('tune', name) for name in names for _ in range(2)),
        *(('final', name) for name in names),
    ]
    assert all(0 <= float(row[metric]) <= 1 for row in first for metric in two_towers.METRICS)
    again = run(0, 1)
    assert again[: len(first)] == first
    assert [row['seed'] for row in again[len(first) :]] == ['1', '1']
