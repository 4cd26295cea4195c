"""The comparison of losses on small DETRs runs, goes on where it was, and measures what it says."""

import csv
from pathlib import Path

import pytest
import torch
import yaml
from forked_processes import run_script

pytest.importorskip('transformers')
pytest.importorskip('mmdet')

from detr_losses import _kinds

ROOT = Path(__file__).parents[3]


def test_kinds_of_the_highest_scores():
    """Two objects, an image: one found twice, one with the wrong class."""
    logits = torch.full((1, 4, 2), -9.0)
    logits[0, 0, 0], logits[0, 1, 0] = 3.0, 2.0
    labels = [dict(boxes=torch.zeros(2, 4), class_labels=torch.tensor([0, 1]))]
    ious = [torch.tensor([[0.9, 0.0], [0.6, 0.0], [0.0, 0.8], [0.0, 0.2]])]
    kinds = _kinds(logits, ious, labels)
    assert kinds == {'right': 0.5, 'twice': 0.5, 'class': 0, 'place': 0, 'none': 0}
    for query, kind in ((2, 'class'), (3, 'place')):
        logits[0, 1, 0] = -9.0
        logits[0, query, 0] = 2.5
        assert _kinds(logits, ious, labels)[kind] == 0.5
        logits[0, query, 0] = -9.0


@pytest.mark.slow
@pytest.mark.processes
def test_a_plan_runs_and_goes_on(tmp_path):
    made = run_script(
        ROOT / 'tools/dataset_converters/make_shapes_coco.py',
        *('--out', 'data', '--num-train', '8', '--num-val', '4', '--num-test', '0'),
        *('--image-size', '128', '128', '--object-size', '20', '90'),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    plan = yaml.safe_load((ROOT / 'tools/research/detr_losses.yaml').read_text('utf-8'))
    plan.update(data='data', seeds=[0, 1], common=dict(steps=2, evals=[1], size=64))
    plan['methods'] = [
        dict(plan['methods'][1], layers=dict(dn=0.5)),
        dict(name='D-FINE', model='dfine'),
        dict(plan['methods'][1], name='DINO', model='dino'),
    ]
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan), 'utf-8')
    tool = ROOT / 'tools/research/detr_losses.py'
    for text in ('6/6', 'mAP compared with'):
        done = run_script(tool, 'plan.yaml', '--out', 'out', cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        assert text in done.stderr + done.stdout
    lines = (tmp_path / 'out/plan.csv').read_text('utf-8').splitlines()
    rows = list(csv.DictReader(lines))
    assert len(rows) == 12
    assert all(0 <= float(row['as_IoU']) <= 1 and float(row['ratio']) > 0 for row in rows)
    assert (tmp_path / 'out/plan.png').stat().st_size > 1000
