"""Models leave their training: published, asked, drawn, averaged, saved."""

import argparse
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from forked_processes import run_script as forked
from mmengine.config import Config
from noisy_boxes import make_document, make_predictions, write_json
from PIL import Image
from small_models import two_tower
from small_retriever import write_image_config

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.cli.test import _set_threshold
from mmrank.datasets.interactions.interaction_dataset import InteractionDataset
from mmrank.engine.hooks import CheckpointMatchHook
from mmrank.engine.resume.matching import compare_states, missing_centre
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import evaluate_boxes
from mmrank.evaluation.operating_points import figures_at, figures_of, matches_by_class
from mmrank.evaluation.recommendation import recommend
from mmrank.pictures import training_curves
from mmrank.pictures.training_curves import plot_training_curves, read_training_logs
from mmrank.registry import MODELS
from mmrank.runners.models import build_model, trained_model
from publish_model import publish_model
from thresholds import choose_thresholds, thresholds_asked

ROOT = Path(__file__).resolve().parents[2]
DETECTOR = ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py'
PUBLISH = 'model_converters/publish_model'


@pytest.fixture
def shop(tmp_path):
    """A two-tower config and weights; user ``ann`` likes ``tea`` best."""
    (tmp_path / 'pairs.csv').write_text('ann,jam\nann,rye\nbob,tea\nbob,jam\nbob,fig\n')
    config = tmp_path / 'shop.py'
    config.write_text(
        f'model = {two_tower(2, 4, channels=2)!r}\n'
        "train_dataloader = dict(dataset=dict(type='mmrank."
        f"InteractionDataset', ann_file={str(tmp_path / 'pairs.csv')!r}))\n"
    )
    model = MODELS.build(two_tower(2, 4, channels=2))
    with torch.no_grad():  # items in the order of the file: jam rye tea fig
        model.left.table.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        model.right.table.weight.copy_(
            torch.tensor([[9.0, 0.0], [8.0, 1.0], [3.0, 0.0], [-1.0, 0.0]])
        )
    torch.save(
        dict(
            meta=dict(epoch=3, dataset_meta=dict(n=np.arange(2)), hook=print),
            state_dict=model.state_dict(),
            optimizer=dict(state={0: torch.ones(500)}),
        ),
        tmp_path / 'shop.pth',
    )
    return config, tmp_path / 'shop.pth'


def test_recommendations_of_a_user(shop, run, tmp_path):
    config, weights = shop
    arguments = [config, weights, 'ann', '--trust-checkpoint', '--top-k', 3]
    tool = 'analysis_tools/recommend'
    out = tmp_path / 'found.csv'
    assert 'tea' in run(tool, *arguments, '--out', out)
    assert out.read_text().split() == ['user,rank,item,score', 'ann,1,tea,3.0', 'ann,2,fig,-1.0']
    picture = tmp_path / 'found.png'
    pairs = config.with_name('pairs.csv')
    run(tool, *arguments, '--held-out', pairs, '--picture', picture)
    assert Image.open(picture).width == 1600
    arguments[2] = 'anne'
    errors = run(tool, *arguments, status=2)
    assert "user 'anne' is not among the 2 users" in errors
    assert "'ann'" in errors
    with pytest.raises(UserError, match='has no towers'):
        recommend(torch.nn.Linear(1, 1), InteractionDataset(str(pairs)).interactions, ['ann'])


def test_published_weights_are_data(shop, run, tmp_path):
    out = tmp_path / 'out' / 'shop.pth'
    assert 'checkpoint may hold data only' in run(PUBLISH, shop[1], out, status=2)
    printed = run(PUBLISH, shop[1], out, '--trust-checkpoint')
    (path,) = out.parent.iterdir()
    assert path.name in printed
    content = torch.load(path, weights_only=True)
    assert content['meta'] == dict(epoch=3, dataset_meta=dict(n=[0, 1]))
    assert set(content) == {'meta', 'state_dict'}
    old = load_checkpoint(shop[1], trust=True)['state_dict']
    assert list(content['state_dict']) == list(old)
    assert all(torch.equal(content['state_dict'][k], x) for k, x in old.items())
    again, digest = publish_model(str(path), out)
    assert again == path  # its own content names a file
    assert path.name == f'shop-{digest[:8]}.pth'
    trained_model(Config.fromfile(shop[0]), str(path))
    with pytest.raises(CheckpointError, match=r'left\.table\.weight'):
        trained_model(Config(dict(model=two_tower(3, 4, channels=2))), str(path))
    with pytest.raises(UserError, match="out='weights' must end in .pth"):
        publish_model(str(path), 'weights')


def test_a_published_config_names_no_folder_of_the_publisher(shop, tmp_path):
    text = """\
data_root = '/data/me/data/'
load_from = '/data/me/a.pth'
model = dict(init_cfg=dict(checkpoint='/data/me/r50.pth', prefix='a/b'))
resume = False
train = [dict(data_root='/data/me/data/', ann_file="C:\\\\me\\\\train.json")]
url = 'https://host/r50.pth'
work_dir = './out'
"""
    content = dict(meta=dict(cfg=text), state_dict={'weight': torch.ones(1)})
    torch.save(content, tmp_path / 'a.pth')
    published = torch.load(publish_model(str(tmp_path / 'a.pth'), tmp_path / 'b.pth')[0])
    expected = """\
model = dict(init_cfg=dict(checkpoint='r50.pth', prefix='a/b'))
train = [dict(data_root='', ann_file="train.json")]
url = 'https://host/r50.pth'
"""
    assert published['meta']['cfg'] == expected


def test_thresholds_leave_with_the_weights(run, tmp_path):
    document = make_document(0, classes=2)
    boxes = [x for x in make_predictions(document, 0, 0.1) if x['category_id'] == 3]
    files = [write_json(tmp_path / 'val.json', document), write_json(tmp_path / 'b.json', boxes)]
    torch.save(dict(state_dict={'weight': torch.ones(1)}), tmp_path / 'a.pth')
    out = tmp_path / 'b.pth'
    run(PUBLISH, tmp_path / 'a.pth', out, '--thresholds', *files, '--at', 'recall@fp0.5')
    (path,) = tmp_path.glob('b-*.pth')
    chosen = torch.load(path, weights_only=True)['meta']['thresholds']
    classes = matches_by_class(evaluate_boxes(*map(str, files)))
    score = figures_of(classes[3], ['recall@fp0.5'])['recall@fp0.5'][1]
    assert chosen['classes'] == {'class 1': score, 'class 2': float('inf')}
    card = path.with_suffix('.md').read_text()
    at = figures_at([(classes[3], score)])
    figures = ' | '.join(f'{at[key]:.4g}' for key in ('recall', 'precision', 'false_alarms'))
    assert f'| class 1 | {score:.4g} | {classes[3].num_objects} | {figures} |' in card
    # Published once more they stay.
    again, _ = publish_model(str(path), out)
    assert torch.load(again, weights_only=True)['meta']['thresholds'] == chosen
    cfg = Config(dict(test_evaluator=dict(type='mmrank.CocoMetric'), load_from=str(path)))
    _set_threshold(cfg, 'auto', trust=False)
    assert cfg.test_evaluator.thresholds == chosen['classes']
    _set_threshold(cfg, '0.25', trust=False)
    assert cfg.test_evaluator.thresholds == 0.25
    for value, file, match in (
        ('auto', 'a.pth', 'has no thresholds.* Fix: .*publish_model.py --thresholds'),
        ('high', 'a.pth', "--threshold 'high' is not a score.* Fix: auto"),
    ):
        cfg.load_from = str(tmp_path / file)
        with pytest.raises(UserError, match=match):
            _set_threshold(cfg, value, trust=False)
    cfg.test_evaluator = [cfg.test_evaluator]
    with pytest.raises(UserError, match='test_evaluator is a list.* Fix: .*mmrank.CocoMetric'):
        _set_threshold(cfg, '0.25', trust=False)
    with pytest.raises(UserError, match='no score of .* reaches recall@p1.* Fix: '):
        choose_thresholds(str(files[0]), [], 'recall@p1')
    with pytest.raises(UserError, match='--iou chooses thresholds.* Fix: --thresholds'):
        thresholds_asked(argparse.Namespace(thresholds=None, iou=0.3))


def test_nearest_images_of_a_picture(run, tmp_path):
    pytest.importorskip('mmpretrain')
    from mmengine.registry import DefaultScope

    config = write_image_config(tmp_path / 'config.py', tmp_path / 'shop')
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(Config.fromfile(config).model)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    shop = tmp_path / 'shop' / 'inner'
    shop.mkdir(parents=True)
    pictures = ('red', (250, 0, 0), 20), ('nearly', (230, 20, 10), 30), ('blue', (0, 0, 250), 20)
    for name, colour, size in pictures:
        Image.new('RGB', (size, size), colour).save(shop / f'{name}.png')
    out = tmp_path / 'nearest.png'
    arguments = [config, tmp_path / 'weights.pth', shop / 'red.png']
    arguments += ['--gallery', tmp_path / 'shop', '--out', out]
    tool = 'analysis_tools/nearest_images'
    table = ''.join(run(tool, *arguments).split('Wrote')[0].split())
    assert table.index('nearly.png') < table.index('blue.png')
    assert 'red.png' not in table  # the picture itself
    assert Image.open(out).size[0] > 400
    (shop / 'blue.png').write_bytes(b'no image')
    assert 'blue.png' in run(tool, *arguments, status=2)


def test_a_model_has_the_preprocessor_of_its_config(tmp_path):
    pytest.importorskip('mmpretrain')
    cfg = Config.fromfile(write_image_config(tmp_path / 'config.py', tmp_path / 'shop'))
    cfg.default_scope = 'mmpretrain'
    own = build_model(cfg).data_preprocessor.mean
    cfg.data_preprocessor = dict(mean=[1.0, 2.0, 3.0], std=[1.0, 1.0, 1.0])
    assert torch.equal(build_model(cfg).data_preprocessor.mean, own)
    del cfg.model.data_preprocessor
    assert build_model(cfg).data_preprocessor.mean.flatten().tolist() == [1, 2, 3]


@pytest.fixture
def work_dir(tmp_path):
    """Logs of a training that was killed and resumed."""
    lines = {
        '20260101_000000': '{"loss": 4.0, "lr": 0.1, "step": 1, "iter": 1}\n'
        '{"loss": 3.0, "lr": 0.1, "step": 2, "iter": 2}\n{"loss": 2',
        '20260102_000000': '{"loss": 1.0, "lr": 0.1, "step": 2, "iter": 2}\n'
        '{"coco/bbox_mAP": 0.5, "step": 1}\n',
    }
    for name, text in lines.items():
        folder = tmp_path / 'run' / name / 'vis_data'
        folder.mkdir(parents=True)
        (folder / 'scalars.json').write_text(text)
    return tmp_path / 'run'


def test_logs_of_a_training_and_its_resume_are_one(work_dir, monkeypatch):
    (log,) = read_training_logs(work_dir)
    assert log.name == 'run'
    assert log.curves == {
        'loss': {1: 4.0, 2: 1.0},
        'lr': {1: 0.1, 2: 0.1},
        'coco/bbox_mAP': {1: 0.5},
    }
    monkeypatch.setattr(training_curves, 'save', lambda figure, path: figure)
    figure = plot_training_curves([log], work_dir / 'curves.png', ['coco/*', 'l*'])
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ['coco/bbox_mAP', 'loss', 'lr']


def test_a_training_that_was_started_over_is_another_line(work_dir):
    again = work_dir / '20260103_000000' / 'vis_data' / 'scalars.json'
    again.parent.mkdir(parents=True)
    again.write_text('{"loss": 9, "step": 1, "iter": 1}\n{"coco/bbox_mAP": 0.5, "step": 1}\n')
    first, second = read_training_logs(work_dir, 'a')
    assert first.name == 'a, 20260101_000000'
    assert first.curves['loss'] == {1: 4.0, 2: 1.0}
    assert (second.name, second.curves['loss']) == ('a', {1: 9.0})


def test_training_curves(work_dir, run, tmp_path):
    tool = 'analysis_tools/training_curves'
    out = tmp_path / 'curves.png'
    run(tool, work_dir, f'b={work_dir}', '--out', out)
    assert Image.open(out).size[0] > 300
    (log, _) = sorted(work_dir.rglob('scalars.json'))
    for trained in (work_dir, log):
        run(tool, trained)
        folder = trained.parent if trained is log else trained
        assert Image.open(folder / 'training_curves.png').size[0] > 300
    assert run(tool, work_dir, '--list') == 'run: loss, lr, coco/bbox_mAP\n'
    errors = run(tool, work_dir, '--keys', 'acc', status=2)
    assert "no scalar is named 'acc'. Fix: take one of loss, lr" in errors
    assert 'has no scalars.json' in run(tool, tmp_path / 'nowhere', status=2)


def test_the_missing_centre_of_a_stock_head_is_reported():
    pytest.importorskip('mmdet')
    from small_heads import FOCAL, STABLE_AP, build_head

    ours = torch.nn.ModuleDict(dict(bbox_head=build_head('RetinaHead', STABLE_AP)))
    stock = torch.nn.ModuleDict(dict(bbox_head=build_head('RetinaHead', FOCAL, listwise=False)))
    ours.bbox_head.loss_cls.loss.mean_positive.mean.fill_(-3.25)
    state = ours.state_dict()
    text = missing_centre(compare_states(stock, state), state)
    assert 'mean_positive.mean = -3.25 as 0.5, and bbox_head of this' in text
    assert "bbox_head = dict(type='mmrank.ListwiseHead'" in text
    assert 'to_stock.py CONFIG CHECKPOINT OUT' in text
    assert missing_centre(compare_states(ours, state), state) == ''
    loops = dict.fromkeys(('_train_loop', '_val_loop', '_test_loop'))
    facts = dict(_load_from='ours.pth', _resume=False, strategy=None)
    runner = SimpleNamespace(model=stock, **facts, **loops)
    with pytest.raises(CheckpointError, match='= -3.25 as 0.5'):
        CheckpointMatchHook().after_load_checkpoint(runner, dict(state_dict=state))
    state['bbox_head.loss_cls.loss.mean_positive.mean'] = torch.zeros(1)
    assert missing_centre(compare_states(stock, state), state) == ''


def test_a_whole_detector_is_saved_for_another_process(tmp_path):
    pytest.importorskip('mmdet')
    from mmengine.registry import init_default_scope

    cfg = Config.fromfile(DETECTOR)
    init_default_scope('mmdet')
    model = MODELS.build(cfg.model).eval()
    torch.save(model, tmp_path / 'model.pth')
    image = torch.zeros(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(image)[0][0]
    script = (
        'import sys, torch\n'
        'model = torch.load(sys.argv[1], weights_only=False)\n'
        'with torch.no_grad():\n'
        '    found = model(torch.zeros(1, 3, 64, 64))[0][0]\n'
        'torch.save(found, sys.argv[2])\n'
    )
    (tmp_path / 'load.py').write_text(script)
    # It has imported mmdet, but made no class of a listwise head.
    done = forked(tmp_path / 'load.py', tmp_path / 'model.pth', tmp_path / 'found.pth')
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / 'found.pth'), expected)


@pytest.mark.slow
def test_test_time_augmentation(tmp_path):
    pytest.importorskip('mmdet')
    from mmengine.registry import DefaultScope

    from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco

    write_shapes_coco(tmp_path / 'data', ShapesSpec(1, 2, 0))
    config = ROOT / 'configs/tutorials/detector.py'
    cfg = Config.fromfile(config)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
    model.bbox_head.loss_cls.loss.mean_positive.mean.fill_(-4.5)
    weights = tmp_path / 'weights.pth'
    torch.save(dict(state_dict=model.state_dict()), weights)
    options = [
        f'test_dataloader.dataset.data_root={tmp_path / "data"}',
        f'test_evaluator.ann_file={tmp_path}/data/annotations/val.json',
        'test_dataloader.num_workers=0',
    ]
    options = ['--work-dir', tmp_path / 'work', '--cfg-options', *options]
    out = weights.with_name('found.pkl')
    done = forked(ROOT / 'tools/test.py', config, weights, '--tta', '--out', out, *options)
    assert done.returncode == 0, done.stderr
    found = pickle.loads(out.read_bytes())
    assert len(found) == 2
    boxes = found[0]['pred_instances']['bboxes']
    assert 0 < len(boxes) <= 100
    # Of the flipped image, too: boxes are in the frame of the original.
    assert boxes[:, 0].min() >= -1
    assert boxes[:, 2].max() <= 257
