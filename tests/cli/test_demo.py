"""The demo, its two configs and the data tools as a user calls them."""

import subprocess
import sys
from pathlib import Path

import first_result
import pytest
import torch
from forked_processes import run_script
from mmengine.config import Config
from PIL import Image
from rich.console import Console

from mmrank.cli import demo
from mmrank.errors import UserError
from mmrank.models.backbones import imagenet_weights

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_quick_demo_end_to_end_and_again(tmp_path):
    pytest.importorskip('mmdet')
    tables = []
    for word in ('done in', 'is reused'):
        done = run_script(ROOT / 'tools/demo.py', '--quick', cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert word in done.stdout
        tables.append((tmp_path / 'work_dirs/demo_quick/results.csv').read_text())
    assert tables[0] == tables[1]
    assert tables[0].startswith('metric (%),graded-ap,focal')
    assert Image.open(tmp_path / 'work_dirs/demo_quick/detections.png').width > 500


def test_demo_leaves_a_strange_folder_alone(tmp_path):
    (tmp_path / 'precious.txt').write_text('x')
    with pytest.raises(UserError, match='holds no data set of this demo'):
        demo.prepare_data(tmp_path, demo.QUICK, Console())
    assert [p.name for p in tmp_path.iterdir()] == ['precious.txt']


@pytest.mark.parametrize('loss', demo.LOSSES)
def test_configs_fit_the_generated_data(loss):
    pytest.importorskip('mmdet')
    spec = demo.SPEC
    cfg = Config.fromfile(ROOT / 'configs' / demo.LOSSES[loss])
    # Nothing is fetched.
    assert cfg.model.backbone.init_cfg.checkpoint == imagenet_weights.CHECKPOINT
    assert cfg.load_from is None
    assert tuple(cfg.metainfo.classes) == spec.classes
    assert cfg.model.bbox_head.num_classes == spec.num_classes
    assert tuple(cfg.image_scale) == (spec.width, spec.height)
    for split in ('train', 'val', 'test'):
        loader = cfg[f'{split}_dataloader']
        # Kept workers would not see the same batches after a resume.
        assert loader.persistent_workers is False
        assert loader.dataset.metainfo.classes == cfg.metainfo.classes


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
