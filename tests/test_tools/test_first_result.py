"""The first result: a table and curves, where torch is all that is there."""

import subprocess
import sys
from pathlib import Path

import first_result
import pytest
import torch

ROOT = Path(__file__).parents[2]
#: What is not in the environment of `make try`; a module that is None cannot be imported.
ABSENT = 'mmengine mmcv mmdet mmpretrain cv2 torchvision transformers pandas sklearn yaml'


@pytest.mark.processes
def test_table_and_curves_with_torch_alone(tmp_path):
    code = (
        f'import sys; sys.modules.update(dict.fromkeys({ABSENT!r}.split())); '
        "sys.path.insert(0, 'tools'); import first_result; "
        'first_result.EPOCHS, first_result.RATES = 1, (0.01,); '
        f"sys.argv = ['', '--seeds', '2', '--out', {str(tmp_path)!r}]; first_result.main()"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ('cross-entropy', 'stable AP', '2 seeds'):
        assert name in done.stdout
    assert (tmp_path / 'pr_curves.png').stat().st_size > 5_000


def test_precision_at_each_recall():
    labels = torch.tensor([1.0, 0, 1, 0])[:, None]
    scores = torch.tensor([0.9, 0.8, 0.7, 0.1])[:, None]
    ap, curve = first_result.evaluated(torch.nn.Identity(), (scores, labels))
    assert ap.item() == pytest.approx(5 / 6)
    assert curve[0, [0, 50, 51, 100]].tolist() == pytest.approx([1, 1, 2 / 3, 2 / 3])
