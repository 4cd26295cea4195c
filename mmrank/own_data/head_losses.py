"""A config with another loss for its scores, and with stored features before its head."""

import ast
import copy
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from mmrank.errors import UserError
from mmrank.registry import MODELS

#: The loss of the config, untouched.
OWN = 'own'
#: Classes that store and read features, which the configs name.
MODULE = 'mmrank.own_data.stored_features'
#: What mmrank recommends for detectors, and for classifiers and retrieval heads.
USUAL_OF_BOXES = 'GradedAPLoss'
USUAL_OF_IMAGES = 'StableAPLoss'


def parse_loss(text: str) -> tuple[str, dict]:
    """Name and settings of ``NAME`` or ``NAME:key=value,key=value``."""
    name, _, rest = text.partition(':')
    settings = {}
    for pair in filter(None, rest.split(',')):
        key, equals, value = pair.partition('=')
        if not equals:
            raise UserError(
                f'--losses {text}: {pair!r} is not KEY=VALUE. Fix: {name}:loss_weight=0.3'
            )
        try:
            settings[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            settings[key] = value
    if name == OWN and settings:
        raise UserError(f'--losses {text}: {OWN} has no settings. Fix: set them in the config')
    if name != OWN and MODELS.get(f'mmrank.{name}') is None:
        raise UserError(
            f'--losses {text}: mmrank has no loss {name!r}. Fix: {OWN} (of the config), focal loss '
            'as QualityFocalLoss:use_iou=False,alpha=0.25, or a name of docs/pages/losses.md'
        )
    return name, settings


def usual_name(model: Mapping, losses: Mapping[str, str]) -> str | None:
    """Name of the first loss that mmrank recommends for such a model; None if none of them.

    Args:
        model: Settings of the model.
        losses: Text of each loss by its name.
    """
    usual = USUAL_OF_IMAGES if 'head' in model else USUAL_OF_BOXES
    return next((name for name, text in losses.items() if parse_loss(text)[0] == usual), None)


def loss_changes(model: Mapping, text: str) -> dict:
    """What a config that inherits the user's sets in ``model`` for a loss."""
    name, settings = parse_loss(text)
    if name == OWN:
        return {}
    loss = dict(type=f'mmrank.{name}', **settings)
    if 'head' in model:
        return dict(head=_classifier(model['head'], loss))
    loss['_delete_'] = True
    if 'roi_head' in model:
        return _two_stages(model, loss)
    if 'bbox_head' in model:
        return dict(bbox_head=_listwise(model['bbox_head'], 'mmrank.ListwiseHead', loss))
    raise UserError(
        f'model {model["type"]!r} has neither bbox_head, roi_head nor head. Fix: a detector of '
        'mmdet, or a classifier or retriever of mmpretrain'
    )


def _listwise(head: Mapping, listwise: str, loss: dict) -> dict:
    if str(head['type']).startswith('mmrank.'):
        return dict(loss_cls=loss)
    kind = head['type'] if '.' in head['type'] else f'mmdet.{head["type"]}'
    return dict(type=listwise, head_type=kind, loss_cls=loss)


def _two_stages(model: Mapping, loss: dict) -> dict:
    box_head = model['roi_head'].get('bbox_head')
    if not isinstance(box_head, Mapping):
        raise UserError('roi_head has no single bbox_head. Fix: a Faster R-CNN')
    # As configs/ap_loss/faster-rcnn_r18_fpn_graded-ap_bccd.py: nothing is sampled away.
    return dict(
        rpn_head=_listwise(model['rpn_head'], 'mmrank.ListwiseHead', loss),
        roi_head=dict(bbox_head=_listwise(box_head, 'mmrank.ListwiseBBoxHead', loss)),
        train_cfg=dict(
            rpn=dict(sampler=dict(_delete_=True, type='PseudoSampler')),
            rcnn=dict(sampler=dict(num=1000000, pos_fraction=1.0)),
        ),
    )


def _classifier(head: Mapping, loss: dict) -> dict:
    if str(head['type']).startswith('mmrank.'):
        return dict(loss=dict(loss, _delete_=True))
    known = {key: head[key] for key in ('num_classes', 'in_channels') if key in head}
    return dict(_delete_=True, type='mmrank.OneVsRestHead', **known, loss=loss)


def frozen_parts(model: Mapping, keeps_neck: bool) -> list[str]:
    """Names of the parts of a model that are stored: backbone and neck, or the first encoder."""
    if 'image_encoder' in model:
        return ['image_encoder.0']
    if not keeps_neck or not model.get('neck'):
        return ['backbone']
    return ['backbone', 'neck']


def has_pretrained(model: Mapping) -> bool:
    """Whether the config names trained weights for the part that is stored."""
    first = model['image_encoder'][0] if 'image_encoder' in model else model.get('backbone')
    whole = {key: model.get(key) for key in ('init_cfg', 'pretrained')}
    return _names_weights([first, whole])


def _names_weights(settings: object) -> bool:
    if isinstance(settings, list | tuple):
        return any(map(_names_weights, settings))
    if not isinstance(settings, Mapping):
        return False
    is_named = settings.get('type') == 'Pretrained' or bool(settings.get('pretrained'))
    return is_named or _names_weights([*settings.values()])


def count_classes(model: Mapping) -> int | None:
    """Number of classes of a detector; None for other models."""
    head = model.get('bbox_head') or (model.get('roi_head') or {}).get('bbox_head')
    return head.get('num_classes') if isinstance(head, Mapping) else None


def stored_config(
    cfg: Config, text: str, folder: Path, parts: list[str], steps: int, images: str = 'train'
) -> Config:
    """The config that trains the head of ``cfg`` with a loss on stored features.

    Args:
        cfg: Config of the whole network.
        text: The loss, as :func:`parse_loss` reads it.
        folder: Where the features are.
        parts: Names of the parts that are stored.
        steps: Steps of the training.
        images: Name of the features in the folder that are trained on.
    """
    made = copy.deepcopy(cfg)
    made.merge_from_dict(dict(model=loss_changes(cfg.model, text)))
    stored = dict(type='torch.nn.Identity')  # its input is what the frozen part would return
    if parts == ['image_encoder.0']:
        made.model.image_encoder[0] = stored
    else:
        made.model.backbone = stored
    if 'neck' in parts:
        made.model.neck = None
    made.model.data_preprocessor = dict(type='mmrank.StackStoredMaps')
    made.model.init_cfg = None
    made.data_preprocessor = None
    imports = list((cfg.get('custom_imports') or {}).get('imports', []))
    made.custom_imports = dict(imports=[*imports, MODULE], allow_failed_imports=False)
    own = cfg.train_dataloader.batch_size
    for split, batch_size, name in (('train', own, images), ('test', 1, 'val')):
        is_training = split == 'train'
        made[f'{split}_dataloader'] = dict(
            batch_size=batch_size,
            num_workers=0,
            collate_fn=dict(type='pseudo_collate'),
            sampler=dict(
                type='InfiniteSampler' if is_training else 'DefaultSampler', shuffle=is_training
            ),
            dataset=dict(type='mmrank.StoredSamples', path=str(folder / name)),
        )
    made.train_cfg = dict(by_epoch=False, max_iters=steps)
    made.test_cfg = dict()
    made.test_evaluator = cfg.val_evaluator
    for name in ('val_dataloader', 'val_evaluator', 'val_cfg'):
        made[name] = None
    warm_up = max(steps // 10, 1)
    made.param_scheduler = [
        dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warm_up),
        dict(type='CosineAnnealingLR', T_max=steps - warm_up, by_epoch=False, begin=warm_up),
    ]
    checkpoint = dict(
        type='mmrank.AtomicCheckpointHook', interval=steps, by_epoch=False, max_keep_ckpts=1
    )
    made.default_hooks = dict(
        logger=dict(type='LoggerHook', interval=1 if steps < 100 else 20), checkpoint=checkpoint
    )
    made.custom_hooks = [
        dict(type='mmrank.RNGStateHook'),
        # A head that diverges has an AP as well, of ties.
        dict(type='mmrank.RankingMonitorHook', interval=10),
        *([dict(type='mmrank.ClassCountsHook')] if 'head' in made.model else []),
    ]
    made.log_processor = dict(by_epoch=False, window_size=5)
    made.load_from = None
    made.resume = False
    return made


def winner_text(config: Path, changes: Mapping, loss: str, why: str) -> str:
    """A config of a few lines that trains the whole network on a loss."""
    lines = [f'# {why}', f'_base_ = {str(config)!r}']
    if changes:
        lines.append(Config(dict(model=changes)).pretty_text.rstrip())
    else:
        lines.append(f'# The loss of the config itself ({loss}): nothing is changed.')
    return '\n'.join(lines) + '\n'
