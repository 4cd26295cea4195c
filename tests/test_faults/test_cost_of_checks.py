"""Cost of a check of a large annotation file beside reading it."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from coco_document import coco_document

from mmrank.annotations.check import read_checked

ROOT = Path(__file__).resolve().parents[2]
NUM_IMAGES, NUM_BOXES = 100_000, 800_000


def test_a_check_imports_no_torch():
    code = "import mmrank.annotations.check, sys; assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, '-c', code], check=True, env={**os.environ, 'PYTHONPATH': str(ROOT)}
    )


@pytest.fixture(scope='module')
def large_file(tmp_path_factory):
    """100,000 images with 8 boxes each."""
    rng = np.random.default_rng(0)
    box = np.round(rng.uniform([0, 0, 5, 5], 300, (NUM_BOXES, 4)), 2)
    boxes = [(i % NUM_IMAGES, 1 + i % 80, own) for i, own in enumerate(box.tolist())]
    document = coco_document(boxes, NUM_IMAGES, (640, 480), map(str, range(80)), first=0)
    path = tmp_path_factory.mktemp('large') / 'large.json'
    path.write_text(json.dumps(document))
    return path


@pytest.mark.slow
def test_a_check_takes_at_most_twice_the_time_of_reading(large_file):
    """Both in this process, turn by turn, by processor time."""
    seconds = {'load': [], 'check': []}
    for _ in range(3):
        start = time.process_time()
        with large_file.open() as file:
            document = json.load(file)
        seconds['load'].append(time.process_time() - start)
        del document
        gc.collect()
        start = time.process_time()
        assert read_checked(large_file)[1].ok
        seconds['check'].append(time.process_time() - start)
        gc.collect()
    load, check = (min(x) for x in seconds.values())
    print(f'json.load {load:.2f} s, check {check:.2f} s: {check / load:.2f}')
    assert check <= 2 * load
