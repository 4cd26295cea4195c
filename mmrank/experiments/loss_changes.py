"""A config with another loss for its scores."""

import ast
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from mmrank.errors import UserError
from mmrank.registry import MODELS

#: The loss of the config, untouched.
OWN = 'own'


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


def loss_changes(model: Mapping, text: str) -> dict:
    """What a config that inherits the user's sets in ``model`` for a loss."""
    name, settings = parse_loss(text)
    if name == OWN:
        return {}
    loss = dict(type=f'mmrank.{name}', **settings)
    if 'head' in model:
        head = model['head']
        if str(head['type']).startswith('mmrank.'):
            return dict(head=dict(loss=dict(loss, _delete_=True)))
        known = {key: head[key] for key in ('num_classes', 'in_channels') if key in head}
        return dict(head=dict(_delete_=True, type='mmrank.OneVsRestHead', **known, loss=loss))
    loss['_delete_'] = True
    if 'roi_head' in model:
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
    if 'bbox_head' in model:
        return dict(bbox_head=_listwise(model['bbox_head'], 'mmrank.ListwiseHead', loss))
    what = f'model {model["type"]!r} has neither bbox_head, roi_head nor head'
    raise UserError(what, 'a detector of mmdet, or a classifier or retriever of mmpretrain')


def _listwise(head: Mapping, listwise: str, loss: dict) -> dict:
    if str(head['type']).startswith('mmrank.'):
        return dict(loss_cls=loss)
    kind = head['type'] if '.' in head['type'] else f'mmdet.{head["type"]}'
    return dict(type=listwise, head_type=kind, loss_cls=loss)


def shorter_schedule(cfg: Config, epochs: int) -> dict:
    """What a config sets that trains for other epochs: all schedules end with the training."""
    whole = (cfg.get('train_cfg') or {}).get('max_epochs')
    if whole is None:
        what = '--epochs: train_cfg of the config counts iterations'
        fix = 'leave out --epochs, or set train_cfg.max_iters and the schedules in the config'
        raise UserError(what, fix)
    schedulers = cfg.get('param_scheduler') or []
    made = [dict(x) for x in ([schedulers] if isinstance(schedulers, Mapping) else schedulers)]
    for scheduler in made:
        for key in ('begin', 'end', 'T_max', 'milestones'):
            if key in scheduler:
                scheduler[key] = _scaled(scheduler[key], epochs / whole)
    return dict(train_cfg=dict(max_epochs=epochs, val_interval=epochs), param_scheduler=made)


def _scaled(place: int | list[int], factor: float) -> int | list[int]:
    """A step, or a list of steps, of a training of another length."""
    if isinstance(place, list | tuple):
        return sorted({max(1, round(x * factor)) for x in place})
    return max(1, round(place * factor)) if place else place


def resumable(cfg: Config) -> dict:
    """What a config sets so that a training that was killed ends as one that was not."""
    hooks = [*(cfg.get('custom_hooks') or [])]
    if not any(str(hook['type']).endswith('RNGStateHook') for hook in hooks):
        hooks.append(dict(type='mmrank.RNGStateHook'))
    return dict(train_dataloader=dict(persistent_workers=False), custom_hooks=hooks)


def moved_outputs(evaluator: Mapping | list, prefix: str) -> dict | list:
    """An evaluator, or a list of them, that writes its predictions under another name."""
    if isinstance(evaluator, list | tuple):
        return [moved_outputs(one, prefix) for one in evaluator]
    made = dict(evaluator)
    if made.get('outfile_prefix'):
        made['outfile_prefix'] = prefix
    return made


def config_text(config: str, changes: Mapping, comment: str) -> str:
    """A config of a few lines that inherits another one."""
    settings = Config({key: value for key, value in changes.items() if value})
    return f'# {comment}\n_base_ = {str(Path(config).resolve())!r}\n{settings.pretty_text}'
