"""``mmrank`` from a wheel, typed in an empty folder."""

import os
import subprocess
import sys

import pytest
from built_package import build, copy_checkout


@pytest.fixture(scope='module')
def mmrank(tmp_path_factory):
    """Runs the installed command in an empty folder; it must end with a status."""
    pytest.importorskip('mmdet')
    root = tmp_path_factory.mktemp('wheel')
    wheel = build(copy_checkout(root / 'checkout'), 'build_wheel', root / 'built')
    place = root / 'installed'
    options = ['--no-deps', '--no-index', '-q', '--target', str(place)]
    subprocess.run([sys.executable, '-m', 'pip', 'install', *options, str(wheel)], check=True)
    empty = root / 'empty'
    empty.mkdir()
    # The environment has the other packages, and a checkout's mmrank, which the wheel precedes.
    env = {**os.environ, 'PYTHONPATH': str(place)}

    def run(line, status=0):
        command = [sys.executable, str(place / 'bin' / 'mmrank'), *line.split()]
        done = subprocess.run(command, cwd=empty, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    run.folder = empty
    return run


@pytest.mark.slow
def test_each_command_works(mmrank):
    assert 'can train and test detectors' in mmrank('doctor')
    mmrank('demo --quick')
    data = 'data/shapes_demo_quick'
    labels = f'{data}/annotations/val.json'
    mmrank(f'check coco {labels} --images {data}/val')
    mmrank(f'new-config --coco {data} --model atss-r18 --small --epochs 1 --out mine.py')
    options = '--cfg-options train_dataloader.num_workers=0 val_dataloader.num_workers=0'
    options += ' train_dataloader.persistent_workers=False val_dataloader.persistent_workers=False'
    mmrank(f'train mine.py {options}')
    checkpoint = next((mmrank.folder / 'work_dirs/mine').glob('epoch_*.pth'))
    options = '--cfg-options test_dataloader.num_workers=0'
    mmrank(f'test mine.py {checkpoint} {options} test_dataloader.persistent_workers=False')
    mmrank(f'draw detections {labels} {data}/val work_dirs/demo_quick/focal.bbox.json')
    name = min(path.name for path in (mmrank.folder / data / 'val').iterdir())
    (mmrank.folder / 'labels.csv').write_text(f'{name},1,1,9,9,a\n')
    mmrank(f'convert labels.csv --from csv --images {data}/val --out labels.json')
    # It trains for the trial, and says then how long it would take.
    shown = mmrank('compare mine.py --losses own --budget 1s', status=2)
    assert '--budget is too small' in shown
