"""The demo, its two configs and the data tools as a user calls them."""

import json
from functools import partial
from pathlib import Path

import pytest
from forked_processes import run_script
from mmengine.config import Config
from PIL import Image
from rich.console import Console

from mmrank.apis.commands import demo
from mmrank.apis.synthetic.shapes_coco import ShapesSpec
from mmrank.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / 'configs' / 'stable_ap'
call = partial(run_script, cwd=ROOT)


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    """A generated data set, made through the command line."""
    root = tmp_path_factory.mktemp('data') / 'shapes'
    sizes = ['--num-train', 3, '--num-val', 4, '--num-test', 0]
    tool = 'tools/dataset_converters/make_shapes_coco.py'
    done = call(tool, '--out', root, *sizes, '--seed', 3)
    assert done.returncode == 0, done.stderr
    assert f'Wrote {root}' in done.stdout.replace('\n', '')
    return root


def test_figures_from_prediction_files(data_root, tmp_path):
    ann_file = data_root / 'annotations' / 'val.json'
    annotations = json.loads(ann_file.read_text())['annotations']
    keys = ('image_id', 'category_id', 'bbox')
    boxes = [{k: a[k] for k in keys} | {'score': 0.5} for a in annotations]
    predictions = tmp_path / 'p.bbox.json'
    predictions.write_text(json.dumps(boxes))
    out = tmp_path / 'pr.png'
    tool = 'tools/analysis_tools/plot_pr_curves.py'
    done = call(tool, ann_file, f'mine={predictions}', '--out', out)
    assert done.returncode == 0, done.stderr
    assert '100.0' in done.stdout
    assert Image.open(out).width > 500
    out = tmp_path / 'boxes.png'
    tool = 'tools/analysis_tools/draw_detections.py'
    images = data_root / 'val'
    done = call(tool, ann_file, images, f'mine={predictions}', '--out', out)
    assert done.returncode == 0, done.stderr
    assert Image.open(out).width > 500
    done = call(tool, ann_file, images, f'mine={ann_file}')
    assert done.returncode == 2
    assert 'not the annotation file' in done.stderr


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


@pytest.fixture(scope='module')
def demo_configs():
    pytest.importorskip('mmdet')
    return {
        loss: Config.fromfile(CONFIGS / f'retinanet_r18_fpn_{loss}_demo.py')
        for loss in ('focal', 'stable-ap')
    }


def test_configs_differ_in_the_loss_alone(demo_configs):
    focal, stable = (demo_configs[key].to_dict() for key in ('focal', 'stable-ap'))
    for config in (focal, stable):
        # What may differ: the loss, the head that serves it, its monitor.
        config.pop('custom_hooks', None)
        head = config['model']['bbox_head']
        for key in ('type', 'head_type', 'loss_cls'):
            head.pop(key, None)
    assert focal == stable


def test_configs_fit_the_generated_data(demo_configs):
    spec = ShapesSpec()
    for cfg in demo_configs.values():
        assert cfg.model.backbone.init_cfg is cfg.load_from is None  # nothing is fetched
        assert tuple(cfg.metainfo.classes) == spec.classes
        assert cfg.model.bbox_head.num_classes == spec.num_classes
        assert tuple(cfg.image_scale) == (spec.width, spec.height)
        for split in ('train', 'val', 'test'):
            loader = cfg[f'{split}_dataloader']
            # Kept workers would not see the same batches after a resume.
            assert loader.persistent_workers is False
            assert loader.dataset.metainfo.classes == cfg.metainfo.classes
