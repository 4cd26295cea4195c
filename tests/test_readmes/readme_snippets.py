"""Python blocks of READMEs and pages, and small trainings to run them on."""

import copy
from functools import cache
from pathlib import Path

import torch
from docs_blocks import ROOT, block
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from random_weights import without_downloads

from documents import blocks_of, documents
from make_glyphs import GlyphsSpec, draw_glyph
from mmrank.apis.synthetic.shapes_coco import ShapesSpec, write_shapes_coco


@cache
def all_snippets():
    """Python blocks of README.md, of the configs' READMEs and of docs/.

    A file that a page includes whole is not among them: tests/test_docs/test_user_pages.py runs it.
    docs/pages/write_a_loss.md has a test of its own.
    """
    pages = [path for path in documents(ROOT) if path.name != 'write_a_loss.md']
    found = [block for page in pages for block in blocks_of(page)]
    return [x for x in found if x.opening == 'python' and not x.text.startswith('--8<--')]


def snippet(readme, mark):
    """The one Python block of a README or page that contains ``mark``."""
    return block(ROOT / readme, mark)


def config_of(text, folder):
    """The config that a reader would save the block as."""
    path = Path(folder) / 'my_config.py'
    path.write_text(text)
    return Config.fromfile(path)


# Detection: 12 images, evaluated on the same images.


def write_images(folder, **changes):
    """Twelve images of shapes, or as ``changes`` of the spec say."""
    spec = dict(num_train=12, num_val=1, num_test=0)
    write_shapes_coco(folder, ShapesSpec(**{**spec, **changes}))
    return folder


def tiny_detector(cfg):
    """The detector of a config, narrow, from random weights."""
    without_downloads(cfg.model)
    model = cfg.model
    model.backbone.update(
        depth=18,
        base_channels=32,
        frozen_stages=-1,
        norm_cfg=dict(type='BN', requires_grad=True),
        norm_eval=False,
    )
    model.neck.update(in_channels=[32, 64, 128, 256], out_channels=64)
    if 'roi_head' not in model:
        model.bbox_head.update(num_classes=6, in_channels=64, feat_channels=64, stacked_convs=1)
        model.bbox_head.anchor_generator.octave_base_scale = 3
        model.test_cfg.update(score_thr=0.0)
        return cfg
    model.rpn_head.update(in_channels=64, feat_channels=64)
    model.rpn_head.anchor_generator.scales = [4]
    model.train_cfg.rpn_proposal.max_per_img = 200
    model.test_cfg.rpn.max_per_img = 200
    model.roi_head.bbox_roi_extractor.out_channels = 64
    model.roi_head.bbox_head.update(in_channels=64, fc_out_channels=128, num_classes=6)
    model.test_cfg.rcnn.update(score_thr=0.0)
    return cfg


def train_detector(cfg, images, work_dir, iterations, warm_up):
    """Train with the optimiser of the base config; AP of the same images.

    Returns:
        AP50 of the training images and the history of each logged scalar.
    """
    data = Config.fromfile(ROOT / 'configs/_base_/datasets/shapes_coco.py')
    loader = copy.deepcopy(data.train_dataloader)
    loader.update(batch_size=4, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True))
    test = copy.deepcopy(data.val_dataloader)
    test.update(batch_size=4, num_workers=0)
    test.dataset.update(ann_file='annotations/train.json', data_prefix=dict(img='train/'))
    for one in (loader, test):
        one.dataset.data_root = f'{images}/'
    evaluator = dict(type='CocoMetric', ann_file=f'{images}/annotations/train.json')
    settings = dict(
        model=cfg.model,
        work_dir=str(work_dir),
        train_dataloader=loader,
        test_dataloader=test,
        test_evaluator=evaluator,
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=iterations),
        test_cfg=dict(type='TestLoop'),
        optim_wrapper=cfg.optim_wrapper,
        # The warm-up of the base config, of which this sees the beginning.
        param_scheduler=[
            one
            for one in cfg.param_scheduler
            if one.type == 'LinearLR' and not one.by_epoch and warm_up
        ],
        default_scope='mmdet',
        default_hooks=dict(logger=dict(type='LoggerHook', interval=iterations), checkpoint=None),
        custom_hooks=cfg.get('custom_hooks', []),
        randomness=dict(seed=0),
        log_level='WARNING',
        experiment_name=Path(work_dir).name,
    )
    runner = Runner.from_cfg(Config(settings))
    runner.train()
    metrics = runner.test()
    history = {name: buffer.data[0] for name, buffer in runner.message_hub.log_scalars.items()}
    return 100 * metrics.get('coco/bbox_mAP_50', 0.0), history


# The others: batches in memory, the optimiser of an mmpretrain config.


def stock_optimiser(name):
    """``optim_wrapper`` of a config of mmpretrain, such as a schedule."""
    import mmpretrain

    package = Path(mmpretrain.__file__).parent
    folders = [package / '.mim/configs', package.parent / 'configs']
    folder = next(f for f in folders if f.is_dir())
    return Config.fromfile(folder / name).optim_wrapper


def narrow(node):
    """ResNets of a model with an eighth of the channels, depth 18."""
    if isinstance(node, dict):
        if str(node.get('type', '')).endswith('.ResNet'):
            node.update(depth=18, base_channels=8, stem_channels=8)
        for key in ('in_channels', 'image_channels'):
            if node.get(key) in (512, 2048):
                node[key] = 64
        if 'hid_channels' in node:
            node.update(hid_channels=64, out_channels=32)
        for value in node.values():
            narrow(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            narrow(value)


CLASSES, DRAWINGS = 50, 16


@cache
def _alphabet():
    """(CLASSES, DRAWINGS, size, size) uint8 invented characters."""
    spec = GlyphsSpec(size=24)
    return torch.stack(
        [
            torch.stack([torch.from_numpy(draw_glyph(spec, c, k)) for k in drawings])
            for c, drawings in enumerate([range(DRAWINGS)] * CLASSES)
        ]
    )


def glyphs(labels, drawings):
    """(n, 3, 24, 24) images of characters and their drawings, (n,) each."""
    images = _alphabet()[torch.as_tensor(labels), torch.as_tensor(drawings)]
    return images[:, None].expand(-1, 3, -1, -1).contiguous()


def train_model(model, optimiser, batches):
    """Train as mmengine's loop does; the log of every step."""
    wrapper = build_optim_wrapper(model, optimiser)
    model.train()
    logs = []
    for data in batches:
        log = model.train_step(data, wrapper)
        logs.append({name: float(torch.as_tensor(value).detach()) for name, value in log.items()})
    return logs
