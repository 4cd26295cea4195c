"""The data layer of a user who has neither mmdet nor mmpretrain."""

import subprocess
import sys

SCRIPT = """
import sys
for name in ('mmdet', 'mmpretrain'):
    sys.modules[name] = None
import mmrank.datasets.checks.coco_check
import mmrank.studies.synthetic.shapes_coco
import mmrank.studies.coco.pictures.detections
import mmrank.studies.coco.pictures.pr_curves
from mmrank.registry import DATASETS
try:
    DATASETS.build(dict(type='mmrank.CheckedCocoDataset', ann_file='a'))
except ImportError as error:
    print(error)
"""


def test_data_layer_imports_and_says_what_is_missing():
    done = subprocess.run(
        [sys.executable, '-c', SCRIPT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 'requires mmdet, which is not installed' in done.stdout
