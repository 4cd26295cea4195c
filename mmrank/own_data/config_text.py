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
{scales}
model = dict(
{layers}
{heads}{start}

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
custom_hooks = [{own_hooks}dict(type='mmrank.RankingMonitorHook'), dict(type='mmrank.RNGStateHook')]
visualizer = dict(vis_backends=[{loggers}])
"""
#: Weights of the whole detector, in place of the backbone's.
_START = """
load_from = {load_from!r}
model['backbone'] = dict(model.get('backbone', {{}}), init_cfg=None)  # load_from has its weights"""
_SCALES = 'train_pipeline[2].scale = test_pipeline[1].scale = {scale}'
#: Of mosaic, crop, padding and mix-up; the last epochs have no mosaic and mix-up.
_RTMDET_SCALES = """\
last_pipeline, size = _base_.train_pipeline_stage2, {scale}
train_pipeline[2].img_scale = train_pipeline[8].img_scale = size
train_pipeline[3].scale = (2 * size[0], 2 * size[1])  # of a mosaic
train_pipeline[4].crop_size = train_pipeline[7].size = size
last_pipeline[2].scale = last_pipeline[3].crop_size = last_pipeline[6].size = size
test_pipeline[1].scale = test_pipeline[2].size = size"""
_RTMDET_HOOKS = """_base_.custom_hooks[0],  # average of the weights
    dict(type='PipelineSwitchHook', switch_epoch={switch_epoch}, switch_pipeline=last_pipeline),
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
_RTMDET = """\
    bbox_head=dict(type='mmrank.ListwiseHead', head_type='mmdet.RTMDetSepBNHead',
        num_classes={num_classes}, loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')),
    test_cfg=dict(score_thr=0.0, nms_pre=1000))  # AP ranks all detections"""
_HEADS = {'faster-rcnn': _TWO_STAGES, 'rtmdet': _RTMDET}
#: What ``--small`` adds to the heads.
_NARROW = dict(
    narrow_head='in_channels=64, feat_channels=64, stacked_convs=1,',
    narrow_rpn='in_channels=64, feat_channels=64,',
    narrow_roi='bbox_roi_extractor=dict(out_channels=64), ',
    narrow_box='in_channels=64, fc_out_channels=128,',
    few_proposals=', rpn_proposal=dict(nms_pre=300, max_per_img=128)',
)
#: Backbone and neck by ``(backbone, small)``, where they are not mmdet's own.
_BACKBONES = {
    ('r18', False): """\
    backbone=dict(depth=18, init_cfg=dict(checkpoint='torchvision://resnet18')),
    neck=dict(in_channels=[64, 128, 256, 512]),""",
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
        base=BASES[chosen.detector].format(chosen.backbone),
        shown_classes=pprint.pformat(chosen.classes, width=88, compact=True),
        num_classes=len(chosen.classes),
        switch_epoch=chosen.epochs - max(1, round(chosen.epochs / 15)),  # mmdet: 280 of 300
        root=str(Path(folder)),
        layers=_layers(chosen),
        head=HEADS.get(chosen.detector),
        loss_of_stages=_LOSS_OF_STAGES,
        loaders='\n'.join(_loaders(chosen, splits, folder, work_dir)),
        optimizer=optimizer,
        loggers=', '.join(f"dict(type='{name}')" for name in backends),
        **(_NARROW if chosen.small else dict.fromkeys(_NARROW, '')),
    )
    is_rtmdet = chosen.detector == 'rtmdet'
    parts = dict(
        heads=_HEADS.get(chosen.detector, _ONE_STAGE),
        start=_START if chosen.load_from else '',
        scales=_RTMDET_SCALES if is_rtmdet else _SCALES,
        own_hooks=_RTMDET_HOOKS if is_rtmdet else '',
    )
    text = _CONFIG.format(**{key: part.format(**fields) for key, part in parts.items()}, **fields)
    lines = [line.rstrip() for line in text.splitlines()]
    # mmengine fills in what stands in double braces, also in a name of a class.
    return '\n'.join(lines).replace('(\n\n', '(\n').replace('{{', '{\\x7b') + '\n'


def _layers(chosen: Choices) -> str:
    from mmrank.models.backbones import imagenet_weights  # which takes seconds

    if chosen.backbone != 'lite0':
        return _BACKBONES.get((chosen.backbone, chosen.small), '')
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
        # RTMDet's ten are more than most machines have cores.
        batch = 'num_workers=2, ' if chosen.detector == 'rtmdet' else ''
        pipeline = 'test_pipeline'
        if name == 'train':
            # Workers that outlive an epoch would make a resume inexact.
            batch += f'batch_size={chosen.batch_size}, persistent_workers=False, '
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
