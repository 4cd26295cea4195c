"""Mistakes in configs and files of a detector: what the tools say about them."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest
import torch
from tiny_tool_run import ROOT, TRAIN

pytest.importorskip('mmdet')
from mmdet.models.task_modules import AssignResult
from mmdet.registry import TASK_UTILS
from mmengine.config import Config

from mmrank.apis.synthetic.shapes_coco import ShapesSpec, write_shapes_coco

STABLE_AP = ROOT / 'configs' / 'stable_ap'
CLASSES = 3


@TASK_UTILS.register_module()
class MatchesNothing:
    """An assigner whose threshold no query reaches."""

    def assign(self, pred_instances, gt_instances, img_meta):
        none = torch.zeros(len(pred_instances.scores), dtype=torch.long)
        return AssignResult(len(gt_instances), none, None, labels=none - 1)


@pytest.fixture(scope='module')
def dino(tmp_path_factory):
    """Config file of a narrow DINO on six small images."""
    folder = tmp_path_factory.mktemp('dino')
    spec = ShapesSpec(*(4, 2, 0, 64, 64, CLASSES), max_size=32, empty_fraction=0)
    write_shapes_coco(folder / 'shapes', spec)
    cfg = Config.fromfile(STABLE_AP / 'dino_r18_stable-ap_bccd.py')
    cfg.model.backbone.base_channels = 8
    cfg.model.neck.in_channels = [16, 32, 64]
    cfg.model.decoder.num_layers = 1
    cfg.model.bbox_head.num_classes = CLASSES
    for split in ('train', 'val'):
        dataset = cfg[f'{split}_dataloader'].dataset
        dataset.data_root = f'{folder}/shapes/'
        dataset.data_prefix.img = f'{split}/'
        dataset.metainfo.classes = ('disk', 'square', 'triangle')
        for step in dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (64, 64)
        cfg[f'{split}_dataloader'].num_workers = 0
    cfg.train_dataloader.batch_size = 2
    cfg.train_cfg.update(max_epochs=1, val_interval=1)
    cfg.val_evaluator.ann_file = f'{folder}/shapes/annotations/val.json'
    for key in ('dataloader', 'evaluator', 'cfg'):
        cfg[f'test_{key}'] = cfg[f'val_{key}']
    cfg.work_dir = str(folder / 'work')
    path = folder / 'dino.py'
    cfg.dump(path)
    return path


@pytest.fixture(scope='module')
def untrained(dino):
    """A checkpoint of its model."""
    from mmengine.registry import init_default_scope

    from mmrank.registry import MODELS

    cfg = Config.fromfile(dino)
    init_default_scope('mmdet')
    path = dino.with_name('untrained.pth')
    names = cfg.train_dataloader.dataset.metainfo.classes
    state = MODELS.build(cfg.model).state_dict()
    meta = dict(dataset_meta=dict(classes=names), epoch=0, iter=0)
    torch.save(dict(meta=meta, state_dict=state, message_hub={}), path)
    return path


def one_message(done):
    """What a tool says about a mistake."""
    status, _, err = done
    (found,) = [x for x in err.split('error: ') if 'Fix: ' in x]
    assert status == 2
    assert 'Traceback' not in err
    return found


def test_softmax_in_a_detr(dino, run_script):
    mistake = 'model.bbox_head.loss_cls.use_sigmoid=False'
    found = one_message(run_script(TRAIN, dino, '--cfg-options', mistake))
    assert 'use_sigmoid=False is not supported' in found
    assert 'use_sigmoid=True' in found


def is_upstream():
    """Whether mmdet is OpenMMLab's own, not the maintained fork."""
    try:
        distribution('onedl-mmdetection')
    except PackageNotFoundError:
        return True
    return False


def test_few_queries_and_a_matching_without_positives(dino, tmp_path, run_script):
    """It trains on: another batch may have fewer objects."""
    if is_upstream():
        pytest.skip('the decoder of mmdet 3.3.0 takes 256 channels alone')
    status, _, err = run_script(
        *(TRAIN, dino, '--no-validate', '--work-dir', tmp_path),
        *('--cfg-options', 'model.num_queries=1', 'model.test_cfg.max_per_img=1'),
        *('model.train_cfg._delete_=True', 'default_hooks.checkpoint=None'),
        'model.train_cfg.assigner.type=MatchesNothing',
    )
    assert status == 0, err
    (log,) = tmp_path.rglob('*.log')
    text = log.read_text()
    assert text.count('Fix: model.num_queries=') == 1


def test_checkpoint_of_other_classes(dino, untrained, run_script):
    found = one_message(
        run_script(
            *(TRAIN, dino, '--resume', untrained, '--no-check'),
            *('--cfg-options', 'model.bbox_head.num_classes=5'),
        )
    )
    assert 'was trained on 3 classes (disk, square, triangle)' in found
    assert 'Fix: model.bbox_head.num_classes=3' in found
