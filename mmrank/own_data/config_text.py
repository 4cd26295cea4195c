"""The text of a config, short enough to be read and changed by hand."""

import importlib.util
import pprint
from pathlib import Path

from mmrank.own_data.choices import BASES, Choices
from mmrank.own_data.folder import Split

HEADS = {'atss': 'ATSSHead', 'retinanet': 'RetinaHead'}
#: mmdet's configs leave out images with a shorter side.
_LEAST_SIDE = 32

_CONFIG = """\
# {detector}-{backbone}: {images} images, {boxes} boxes. Written by mmrank new-config.
_base_ = 'mmdet::{base}'
classes = {shown_classes}
data = dict(data_root={root!r}, metainfo=dict(classes=classes))
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = {scale}
model = dict(
{layers}
{heads}

{loaders}

train_cfg = dict(max_epochs={epochs}, val_interval={val_interval})
optim_wrapper = dict(clip_grad=dict(max_norm=10.0), optimizer=dict({optimizer}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, end={warm_up}),
    dict(type='CosineAnnealingLR', T_max={epochs}, end={epochs}, eta_min_ratio=0.02, \
convert_to_iter_based=True)]
auto_scale_lr = dict(base_batch_size={batch_size})
default_hooks = dict(logger=dict(interval={log_interval}), checkpoint=dict(
    type='mmrank.AtomicCheckpointHook', interval={val_interval}, max_keep_ckpts=1, \
save_best='coco/bbox_mAP'))
custom_hooks = [dict(type='mmrank.RankingMonitorHook'), dict(type='mmrank.RNGStateHook')]
visualizer = dict(vis_backends=[{loggers}])
"""
#: The default weight was chosen for one-stage heads.
_LOSS_OF_STAGES = "loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss', loss_weight=1.0)"
_ONE_STAGE = """\
    bbox_head=dict(type='mmrank.ListwiseHead', head_type='mmdet.{head}',
        num_classes={num_classes}, {narrow_head}
        anchor_generator=dict(octave_base_scale={anchor_scale}),
        loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')),
    test_cfg=dict(score_thr=0.0))  # AP ranks all detections"""
_TWO_STAGES = """\
    rpn_head=dict(type='mmrank.ListwiseHead', head_type='mmdet.RPNHead', {narrow_rpn}
        anchor_generator=dict(scales=[{anchor_scale}]),
        {loss_of_stages}),
    roi_head=dict({narrow_roi}bbox_head=dict(type='mmrank.ListwiseBBoxHead',
        head_type='mmdet.Shared2FCBBoxHead', num_classes={num_classes}, {narrow_box}
        {loss_of_stages})),
    train_cfg=dict(rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0)){few_proposals}),
    test_cfg=dict(rcnn=dict(score_thr=0.0)))  # AP ranks all detections"""
#: What ``--small`` adds to the heads.
_NARROW = dict(
    narrow_head='in_channels=64, feat_channels=64, stacked_convs=1,',
    narrow_rpn='in_channels=64, feat_channels=64,',
    narrow_roi='bbox_roi_extractor=dict(out_channels=64), ',
    narrow_box='in_channels=64, fc_out_channels=128,',
    few_proposals=', rpn_proposal=dict(nms_pre=300, max_per_img=128)',
)
#: Backbone and neck by ``(backbone, small)``.
_BACKBONES = {
    ('r18', False): """\
    backbone=dict(depth=18, init_cfg=dict(checkpoint='torchvision://resnet18')),
    neck=dict(in_channels=[64, 128, 256, 512]),""",
    ('r50', False): '',
    ('r18', True): """\
    backbone=dict(depth=18, base_channels=32, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64),""",
    ('r50', True): """\
    backbone=dict(depth=50, base_channels=32, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[128, 256, 512, 1024], out_channels=64),""",
}
#: Backbone and neck with the stages that have the strides of the detector's anchors.
_LITE0 = """\
    data_preprocessor=dict(mean={mean}, std={std}),
    backbone=dict(_delete_=True, type='mmrank.TIMMStages', model_name={model!r},
        out_indices={stages}, frozen_stages=1, freeze_bn=True,
        init_cfg=dict(type='Pretrained', checkpoint={checkpoint!r})),
    neck=dict(in_channels={channels}, out_channels=64, start_level=0),"""
_LITE0_CHANNELS = {1: 24, 2: 40, 4: 112, 6: 320}
_LOADER = """\
{name}_dataloader = dict({batch}dataset=dict(**data, pipeline={pipeline},
    ann_file={ann_file!r}, data_prefix=dict(img={images!r})))"""
_EVALUATOR = """\
{name}_evaluator = dict(type='mmrank.CocoMetric', classwise=True,
    ann_file={ann_file!r}, outfile_prefix={prefix!r})"""


def config_text(chosen: Choices, splits: dict[str, Split], folder: str, work_dir: str) -> str:
    """Text of a config that ``mmrank train`` trains; without a test split it tests on validation.

    ``folder`` is the data set's, as its user names it; ``work_dir`` gets the last detections.
    """
    backends = ['LocalVisBackend']
    if importlib.util.find_spec('tensorboard'):
        backends.append('TensorboardVisBackend')
    optimizer = f'lr={chosen.learning_rate:g}'
    if chosen.small:
        optimizer = f"_delete_=True, type='AdamW', {optimizer}, weight_decay=0.05"
    fields = dict(
        vars(chosen),
        images=splits['train'].report.num_images,
        boxes=len(splits['train'].boxes),
        base=BASES[chosen.detector],
        shown_classes=pprint.pformat(chosen.classes, width=88, compact=True),
        num_classes=len(chosen.classes),
        root=str(Path(folder)),
        layers=_layers(chosen),
        head=HEADS.get(chosen.detector),
        loss_of_stages=_LOSS_OF_STAGES,
        loaders='\n'.join(_loaders(chosen, splits, folder, work_dir)),
        optimizer=optimizer,
        loggers=', '.join(f"dict(type='{name}')" for name in backends),
        **(_NARROW if chosen.small else dict.fromkeys(_NARROW, '')),
    )
    heads = _TWO_STAGES if chosen.detector == 'faster-rcnn' else _ONE_STAGE
    text = _CONFIG.format(heads=heads.format(**fields), **fields)
    lines = [line.rstrip() for line in text.splitlines()]
    # mmengine fills in what stands in double braces, also in a name of a class.
    return '\n'.join(lines).replace('(\n\n', '(\n').replace('{{', '{\\x7b') + '\n'


def _layers(chosen: Choices) -> str:
    from mmrank.models.backbones import imagenet_weights  # which takes seconds

    if chosen.backbone != 'lite0':
        return _BACKBONES[chosen.backbone, chosen.small]
    stages = [*_LITE0_CHANNELS]
    if chosen.detector != 'faster-rcnn':
        stages = stages[1:]
    return _LITE0.format(
        mean=imagenet_weights.MEAN,
        std=imagenet_weights.STD,
        model=imagenet_weights.MODEL,
        checkpoint=imagenet_weights.CHECKPOINT,
        stages=stages,
        channels=[_LITE0_CHANNELS[x] for x in stages],
    )


def _loaders(chosen: Choices, splits: dict[str, Split], folder: str, work_dir: str) -> list[str]:
    texts = []
    for name, split in splits.items():
        batch = ''
        pipeline = 'test_pipeline'
        if name == 'train':
            # Workers that outlive an epoch would make a resume inexact.
            batch = f'batch_size={chosen.batch_size}, persistent_workers=False, '
            pipeline = 'train_pipeline'
            if split.sizes.min() < _LEAST_SIDE:
                pipeline += ', filter_cfg=dict(filter_empty_gt=True, min_size=1)'
        text = _LOADER.format(
            name=name,
            batch=batch,
            pipeline=pipeline,
            ann_file=_below(split.ann_file, folder),
            images=_below(split.image_dir, folder),
        )
        texts.append(text)
    for name in [*splits][1:]:
        file = splits[name].ann_file.as_posix()
        texts.append(_EVALUATOR.format(name=name, ann_file=file, prefix=f'{work_dir}/{name}'))
    if 'test' not in splits:
        texts.append('test_dataloader, test_evaluator = val_dataloader, val_evaluator')
    return texts


def _below(path: Path, folder: str) -> str:
    """A path as mmdet joins it to ``data_root``."""
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return path.absolute().as_posix()
