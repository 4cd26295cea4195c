"""The comparison of losses on few positives trains, records its runs, and goes on where it was."""

import csv

import pytest
import torch
import yaml

import few_positives
from results import FACTS

PLAN = dict(
    data=dict(
        fine=dict(file='features.pt', labels='fine', ratio=4, tuned='exclusive_mAP'),
        both=dict(file='features.pt', labels='both', tuned='mAP'),
    ),
    iterations=4,
    evals=[2],
    batch_size=40,
    seeds=[0, 1],
    tune=dict(seeds=[9], grid=dict(lr=[0.0, 0.1])),
    methods=[
        dict(name='ours', loss=dict(type='StableAPLoss', tau='auto')),
        dict(name='softmax', loss=dict(type='BalancedSoftmaxLoss'), sets=['fine']),
    ],
)


@pytest.mark.slow
def test_a_plan_is_recorded_and_goes_on(tmp_path, monkeypatch):
    """Features that name the class: what is trained is better than what is not."""
    fine = torch.arange(81).repeat_interleave(4)
    features = torch.eye(81)[fine][:, None]
    part = dict(features=features, labels=torch.stack([fine, fine % 43], 1))
    monkeypatch.chdir(tmp_path)
    torch.save(dict.fromkeys(('train', 'val', 'test'), part), 'features.pt')
    plan = tmp_path / 'plan.yaml'
    plan.write_text(yaml.safe_dump(PLAN, sort_keys=False))
    few_positives.run(plan, tmp_path)
    files = {name: tmp_path / f'plan_{name}.csv' for name in PLAN['data']}
    before = {name: file.read_text() for name, file in files.items()}
    rows = list(csv.DictReader(before['fine'].splitlines()))
    assert [r['stage'] for r in rows] == ['tune'] * 8 + ['final'] * 8
    rows = rows[8:]
    assert [(r['method'], r['seed'], r['step']) for r in rows] == [
        (name, seed, step) for seed in '01' for name in ('ours', 'softmax') for step in '24'
    ]
    assert {*FACTS} - {'hash'} < set(rows[0])
    assert all('0.1' in row['settings'] and float(row['mAP']) > 0.2 for row in rows)
    # No softmax where images have several labels.
    assert 'softmax' not in before['both']
    plan.write_text(yaml.safe_dump(PLAN | dict(seeds=[0, 1, 2]), sort_keys=False))
    few_positives.run(plan, tmp_path)
    for name, file in files.items():
        more = file.read_text().removeprefix(before[name]).splitlines()
        assert [row.split(',')[2] for row in more] == ['2'] * (4 if name == 'fine' else 2)


def test_the_long_tail_keeps_the_first_of_each_class():
    kept = few_positives.long_tail(torch.tensor([0, 1, 0, 1, 0, 0, 2, 2]), 4.0)
    # 4, 2 and 1 of the classes by size.
    assert kept.tolist() == [0, 1, 2, 3, 4, 5, 6]
