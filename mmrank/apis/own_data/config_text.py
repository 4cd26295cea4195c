"""The text of a config, short enough to be read and changed by hand."""

import pprint
from pathlib import Path

from .choices import RATIOS, Choices
from .folder import Split

BASES = {
    'atss': 'atss/atss_r50_fpn_1x_coco.py',
    'retinanet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'faster-rcnn': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
}
HEADS = {'atss': 'ATSSHead', 'retinanet': 'RetinaHead'}
#: mmdet's configs leave out images with a shorter side.
_LEAST_SIDE = 32
LOSS = "loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')"


def config_text(chosen: Choices, splits: dict[str, Split], folder: str, work_dir: str) -> str:
    """Text of a config that ``mmrank train`` trains.

    Args:
        chosen: The settings.
        splits: The splits; without a test split the validation split is tested.
        folder: Folder of the data set, as its user names it.
        work_dir: Folder for the detections of the last evaluation.
    """
    classes = pprint.pformat(chosen.classes, width=88, compact=True)
    train = splits['train'].report
    end = chosen.epochs
    lines = [
        f'# {chosen.detector}-r{chosen.depth}: {train.num_images} images, '
        f'{len(splits["train"].boxes)} boxes. Written by mmrank new-config.',
        f"_base_ = 'mmdet::{BASES[chosen.detector]}'",
        f'classes = {classes}',
        f'data = dict(data_root={str(Path(folder))!r}, metainfo=dict(classes=classes))',
        'train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline',
        f'train_pipeline[2].scale = test_pipeline[1].scale = {chosen.scale}',
        *_model(chosen),
        '',
        *_loaders(chosen, splits, folder, work_dir),
        '',
        f'train_cfg = dict(max_epochs={end}, val_interval={chosen.val_interval})',
        *_optimiser(chosen),
        'param_scheduler = [',
        f"    dict(type='LinearLR', start_factor=0.01, by_epoch=False, end={chosen.warm_up}),",
        f"    dict(type='CosineAnnealingLR', T_max={end}, end={end}, eta_min_ratio=0.02, "
        'convert_to_iter_based=True)]',
        f'auto_scale_lr = dict(base_batch_size={chosen.batch_size})',
        f'default_hooks = dict(logger=dict(interval={chosen.log_interval}), checkpoint=dict(',
        f"    type='mmrank.AtomicCheckpointHook', interval={chosen.val_interval}, "
        "max_keep_ckpts=1, save_best='coco/bbox_mAP'))",
        "custom_hooks = [dict(type='mmrank.RankingMonitorHook'), dict(type='mmrank.RNGStateHook')]",
    ]
    if len(chosen.loggers) > 1:
        backends = ', '.join(f"dict(type='{name}')" for name in chosen.loggers)
        lines.append(f'visualizer = dict(vis_backends=[{backends}])')
    # mmengine fills in what stands in double braces, also in a name of a class.
    return '\n'.join(lines).replace('{{', '{\\x7b') + '\n'


def _backbone(chosen: Choices) -> list[str]:
    """Lines for backbone and neck; none where they are the base's."""
    if chosen.small:
        stages = (32, 64, 128, 256) if chosen.depth == 18 else (128, 256, 512, 1024)
        return [
            f'    backbone=dict(depth={chosen.depth}, base_channels=32, frozen_stages=-1, '
            'norm_eval=False, init_cfg=None),',
            f'    neck=dict(in_channels={[*stages]}, out_channels=64),',
        ]
    if chosen.depth == 18:
        return [
            "    backbone=dict(depth=18, init_cfg=dict(checkpoint='torchvision://resnet18')),",
            '    neck=dict(in_channels=[64, 128, 256, 512]),',
        ]
    return []


def _model(chosen: Choices) -> list[str]:
    """Lines of the model: its widths, its head with the loss, its anchors."""
    lines = ['model = dict(', *_backbone(chosen)]
    narrow = 'in_channels=64, feat_channels=64, ' if chosen.small else ''
    ratios = f', ratios={[*chosen.ratios]}' if chosen.ratios in RATIOS[1:] else ''
    if chosen.detector == 'faster-rcnn':
        proposals = ', rpn_proposal=dict(nms_pre=300, max_per_img=128)' if chosen.small else ''
        box_width = 'in_channels=64, fc_out_channels=128, ' if chosen.small else ''
        extractor = 'bbox_roi_extractor=dict(out_channels=64), ' if chosen.small else ''
        return [
            *lines,
            "    rpn_head=dict(type='mmrank.ListwiseHead', head_type='mmdet.RPNHead', "
            + narrow.rstrip(),
            f'        anchor_generator=dict(scales=[{chosen.anchor_scale}]{ratios}),',
            f'        {LOSS}),',
            f"    roi_head=dict({extractor}bbox_head=dict(type='mmrank.ListwiseBBoxHead',",
            f"        head_type='mmdet.Shared2FCBBoxHead', num_classes={len(chosen.classes)}, "
            + box_width.rstrip(),
            f'        {LOSS})),',
            "    train_cfg=dict(rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),",
            f'        rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0)){proposals}),',
            '    test_cfg=dict(rcnn=dict(score_thr=0.0)))  # AP ranks all detections',
        ]
    shallow = narrow + ('stacked_convs=1, ' if chosen.small else '')
    return [
        *lines,
        "    bbox_head=dict(type='mmrank.ListwiseHead', "
        f"head_type='mmdet.{HEADS[chosen.detector]}',",
        f'        num_classes={len(chosen.classes)}, {shallow}'.rstrip(),
        f'        anchor_generator=dict(octave_base_scale={chosen.anchor_scale}{ratios}),',
        f'        {LOSS}),',
        '    test_cfg=dict(score_thr=0.0))  # AP ranks all detections',
    ]


def _loaders(chosen: Choices, splits: dict[str, Split], folder: str, work_dir: str) -> list[str]:
    """Lines of the data loaders and evaluators."""
    lines = []
    for name, split in splits.items():
        batch = ''
        pipeline = 'test_pipeline'
        if name == 'train':
            batch = f'batch_size={chosen.batch_size}, '
            pipeline = 'train_pipeline'
            if split.sizes.min() < _LEAST_SIDE:
                pipeline += ', filter_cfg=dict(filter_empty_gt=True, min_size=1)'
        lines += [
            f'{name}_dataloader = dict({batch}dataset=dict(**data, pipeline={pipeline},',
            f'    ann_file={_below(split.ann_file, folder)!r}, '
            f'data_prefix=dict(img={_below(split.image_dir, folder)!r})))',
        ]
    for name in [name for name in splits if name != 'train']:
        lines += [
            f"{name}_evaluator = dict(type='mmrank.CocoMetric', classwise=True,",
            f'    ann_file={splits[name].ann_file.as_posix()!r}, '
            f'outfile_prefix={f"{work_dir}/{name}"!r})',
        ]
    if 'test' not in splits:
        lines.append('test_dataloader, test_evaluator = val_dataloader, val_evaluator')
    return lines


def _below(path: Path, folder: str) -> str:
    """A path as mmdet joins it to ``data_root``."""
    try:
        return path.relative_to(folder).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def _optimiser(chosen: Choices) -> list[str]:
    """Lines of the optimiser."""
    if not chosen.small:
        return [
            f'optim_wrapper = dict(optimizer=dict(lr={chosen.learning_rate:g}), '
            'clip_grad=dict(max_norm=10.0))'
        ]
    return [
        'optim_wrapper = dict(clip_grad=dict(max_norm=10.0), optimizer=dict(',
        f"    _delete_=True, type='AdamW', lr={chosen.learning_rate:g}, weight_decay=0.05))",
    ]
