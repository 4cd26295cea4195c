"""The demo, its two configs and the data tools as a user calls them."""

import json
from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest
from forked_processes import run_script
from mmengine.config import Config
from PIL import Image

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
    assert 'disk' in done.stdout
    assert 'train: 3' in done.stdout
    return root


def test_generator_refuses_impossible_values(tmp_path):
    tool = 'tools/dataset_converters/make_shapes_coco.py'
    done = call(tool, '--out', tmp_path, '--num-classes', 20)
    assert done.returncode == 2
    assert 'num_classes is 20' in done.stderr


def test_check_and_fix(data_root, tmp_path):
    tool = 'tools/dataset_converters/check_coco.py'
    ann_file = data_root / 'annotations' / 'val.json'
    images = ['--images', data_root / 'val', '--verify-images']
    done = call(tool, ann_file, *images)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'No problem found' in done.stdout
    document = json.loads(ann_file.read_text())
    document['annotations'][0]['bbox'][2] = -4
    bad, fixed = tmp_path / 'bad.json', tmp_path / 'fixed.json'
    bad.write_text(json.dumps(document))
    done = call(tool, bad, '--fix', fixed)
    assert done.returncode == 1
    assert 'negative' in done.stdout
    assert call(tool, fixed, *images).returncode == 0
    bad.write_text(bad.read_text()[:-30])
    done = call(tool, bad)
    assert done.returncode == 2
    assert 'cut off' in done.stderr


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
    folders = ['--data-root', tmp_path / 'd', '--work-dir', tmp_path / 'w']
    first = call('tools/demo.py', '--quick', *folders)
    assert first.returncode == 0, first.stdout + first.stderr
    for name in ('results.md', 'results.csv', 'pr_curves.png'):
        assert (tmp_path / 'w' / name).stat().st_size > 0
    assert Image.open(tmp_path / 'w' / 'detections.png').width > 500
    assert 'stable AP: iteration' in first.stdout
    assert 'focal: iteration' in first.stdout
    table = (tmp_path / 'w' / 'results.csv').read_text()
    assert table.startswith('metric (%),stable AP,focal')
    again = call('tools/demo.py', '--quick', *folders)
    assert again.returncode == 0, again.stdout + again.stderr
    assert 'is reused' in again.stdout
    assert again.stdout.count('already trained') == 2
    assert (tmp_path / 'w' / 'results.csv').read_text() == table
    fresh = call('tools/demo.py', '--quick', '--fresh', *folders)
    assert fresh.returncode == 0, fresh.stdout + fresh.stderr
    # The same seed gives the same figures.
    assert (tmp_path / 'w' / 'results.csv').read_text() == table


def test_demo_leaves_a_strange_folder_alone(tmp_path):
    pytest.importorskip('mmdet')
    (tmp_path / 'precious.txt').write_text('x')
    done = call('tools/demo.py', '--quick', '--data-root', tmp_path)
    assert done.returncode != 0
    assert 'holds no data set of this demo' in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ['precious.txt']


def test_demo_leaves_weights_of_others_alone(tmp_path, monkeypatch):
    pytest.importorskip('mmdet')
    monkeypatch.setattr(
        'mmrank.apis.commands.demo.load_config',
        lambda *_: Config(dict(work_dir=str(tmp_path / 'w'))),
    )
    for name in ('w/mine.pth', 'd/shapes_spec.json'):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(UserError, match='mine.pth is not of this demo'):
        demo.train('focal', 'focal', Namespace(data_root=tmp_path / 'd', fresh=True), None)
    assert (tmp_path / 'w' / 'mine.pth').exists()


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
        assert tuple(cfg.metainfo.classes) == spec.classes
        assert cfg.model.bbox_head.num_classes == spec.num_classes
        assert tuple(cfg.image_scale) == (spec.width, spec.height)
        for split in ('train', 'val', 'test'):
            loader = cfg[f'{split}_dataloader']
            # Kept workers would not see the same batches after a resume.
            assert loader.persistent_workers is False
            assert loader.dataset.metainfo.classes == cfg.metainfo.classes


def test_nothing_is_fetched(demo_configs):
    for cfg in demo_configs.values():
        assert cfg.model.backbone.init_cfg is None
        assert 'torchvision://' not in cfg.pretty_text
        assert cfg.load_from is None
