"""The config of a detector without mmrank, entry by entry."""

import inspect
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from mmrank.errors import UserError
from mmrank.losses.registered import model_type
from mmrank.registry import HOOKS

#: What no stock file may hold.
NAME = 'mmrank'
_FOCAL = dict(type='mmdet.FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=1.0)
_QUALITY_FOCAL = dict(type='mmdet.QualityFocalLoss', use_sigmoid=True, beta=2.0, loss_weight=1.0)
_CROSS_ENTROPY = dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True, loss_weight=1.0)
#: Settings of the stock head, by the nearest class that it derives from, in mmdet's own configs. A
#: query head of DETR has a softmax there and a sigmoid per class here, as its whole family.
STOCK_SETTINGS = {
    'ConditionalDETRHead': dict(loss_cls=dict(_FOCAL, loss_weight=2.0)),
    'DABDETRHead': dict(loss_cls=_FOCAL),
    'DeformableDETRHead': dict(loss_cls=dict(_FOCAL, loss_weight=2.0)),
    'DINOHead': dict(loss_cls=_FOCAL),
    'FoveaHead': dict(loss_cls=dict(_FOCAL, gamma=1.5, alpha=0.4)),
    'GARPNHead': dict(loss_cls=_CROSS_ENTROPY),
    'GFLHead': dict(loss_cls=_QUALITY_FOCAL),
    'RPNHead': dict(loss_cls=_CROSS_ENTROPY),
    'RTMDetHead': dict(loss_cls=_QUALITY_FOCAL),
    'TOODHead': dict(
        loss_cls=dict(_QUALITY_FOCAL, activated=True), initial_loss_cls=dict(_FOCAL, activated=True)
    ),
    'VFNetHead': dict(
        use_vfl=True,
        loss_cls=dict(_FOCAL, type='mmdet.VarifocalLoss', alpha=0.75, iou_weighted=True),
    ),
    'YOLOXHead': dict(loss_cls=dict(_CROSS_ENTROPY, reduction='sum')),
}
#: Arguments that the heads of mmrank have and stock heads have not.
_OWN_ARGUMENTS = {
    'ListwiseHead': ('centre_scores', 'balance_boxes', 'num_layers', 'federated'),
    'ListwiseBBoxHead': ('balance_boxes', 'box_average'),
    'FederatedRoIHead': (),
}
#: Of mmdet's ``BBoxHead``.
_BOX_CLASSES = 80
#: What else has a stock counterpart, which takes its arguments.
_COUNTERPARTS = {
    'AtomicCheckpointHook': 'CheckpointHook',
    'CheckedCocoDataset': 'mmdet.CocoDataset',
    'IndexedConcatDataset': 'ConcatDataset',
    'LVISDataset': 'mmdet.LVISV1Dataset',
    'one_size_collate': 'default_collate',
}
#: The assigner of mmdet's RetinaNet. Its ATSS assigner needs a number that
#: the stock RetinaHead does not pass on.
_MAX_IOU = dict(
    type='mmdet.MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0, ignore_iof_thr=-1
)

#: Transforms that check and change nothing.
_CHECKS = ('CheckFinite',)
#: Settings of one run, which say nothing about the model.
_OF_A_RUN = ('work_dir', 'load_from', 'resume', 'launcher', 'local_rank')
#: Settings that other tools than the runner read.
_TEST_TIME = ('custom_imports', 'tta_model', 'tta_pipeline')
_DROPPED = object()


def stock_config(cfg: Config) -> tuple[Config, list[str]]:
    """Translate a config into a stock one, and describe each entry that changed."""
    scope = cfg.get('default_scope') or 'mmdet'
    changes: list[str] = []
    settings = cfg.to_dict()
    with DefaultScope.overwrite_default_scope(scope):
        stock = {
            key: value for key, value in _entries(settings, '', changes) if key not in _OF_A_RUN
        }
    stock['default_scope'] = scope
    for key in [*stock]:
        # A variable of the file, from which other entries were made.
        if not _is_read(key) and any(_mentions({key: stock[key]}, '')):
            del stock[key]
    for path, value in _mentions(stock, ''):
        raise UserError(
            f'{path}={value!r} of the config names {NAME}, and a stock config '
            f'must not.\n  Fix: --cfg-options {path}=ANOTHER'
        )
    return Config(stock), changes


def _entries(node: Mapping, path: str, changes: list[str]) -> Iterator[tuple[str, Any]]:
    """The translated entries of a dict, without those that go."""
    for key, value in node.items():
        below = f'{path}.{key}' if path else str(key)
        if path or _is_read(key):
            value = _translate(value, below, changes)
        if value is not _DROPPED:
            yield key, value


def _is_read(key: str) -> bool:
    """Whether a runner or a test reads an entry of the first level."""
    known = inspect.signature(Runner.__init__).parameters
    return key in known or key in _TEST_TIME


def _translate(node: Any, path: str, changes: list[str]) -> Any:
    if path == 'custom_imports':
        return _without_own_imports(node)
    if isinstance(node, type):
        return _shown(node)
    if isinstance(node, list | tuple):
        items = [_translate(item, f'{path}.{i}', changes) for i, item in enumerate(node)]
        return type(node)(item for item in items if item is not _DROPPED)
    if not isinstance(node, Mapping):
        return node
    name = _own_name(node.get('type'))
    if name is None:
        loss = node.get('loss_cls')
        if isinstance(loss, Mapping) and _own_name(loss.get('type')):
            node = _box_head(dict(node), path, changes)
    else:
        node = _counterpart(name, dict(node), path, changes)
    return node if node is _DROPPED else dict(_entries(node, path, changes))


def _own_name(kind: Any) -> str | None:
    """Name of a class of mmrank; None for others."""
    kind = _shown(kind)
    is_own = isinstance(kind, str) and kind.startswith(f'{NAME}.')
    return kind.rpartition('.')[2] if is_own else None


def _counterpart(name: str, node: dict, path: str, changes: list[str]) -> Any:
    """The entry of a stock config in place of one of mmrank."""
    if name in _OWN_ARGUMENTS:
        node = {key: value for key, value in node.items() if key not in _OWN_ARGUMENTS[name]}
        node['type'] = node.pop('head_type')
        if name == 'FederatedRoIHead':
            changes.append(f'{path}: {_shown(node["type"])}')
            return node
        head = _box_head if name == 'ListwiseBBoxHead' else _dense_head
        return head(node, path, changes)
    if name == 'SUM' and node.get('s', 0) in (0, 1):
        changes.append(f'{path}: SGD for {NAME}.{name}')
        s = node.pop('s', 0)
        return dict(node, nesterov=s == 1, type='SGD')
    if name in _COUNTERPARTS:
        kind = _COUNTERPARTS[name]
        changes.append(f'{path}: {kind} for {NAME}.{name}')
        return {**node, 'type': kind}
    if name == 'AnchorATSSAssigner':
        changes.append(
            f'{path}: {_MAX_IOU["type"]} for {NAME}.{name}, which a stock head cannot call'
        )
        return dict(_MAX_IOU)
    if name in _own_hooks() or name in _CHECKS:
        changes.append(f'{path}: without {NAME}.{name}')
        return _DROPPED
    raise UserError(
        f'{path}.type={NAME + "." + name!r} has no counterpart in mmdet.\n  Fix: {_remedy(path)}'
    )


@cache
def _own_hooks() -> frozenset[str]:
    HOOKS.import_from_location()
    return frozenset(HOOKS.module_dict)


def _remedy(path: str) -> str:
    if path.partition('.')[0] == 'model':
        return f'none for these weights: keep the config of the training, and {NAME} installed'
    return (
        f'write a config that inherits from this one and sets {path} to a class of mmdet, mmengine '
        'or torch, with _delete_=True; what a training needs may be anything here'
    )


def _dense_head(node: dict, path: str, changes: list[str]) -> dict:
    host = model_type(node['type'])
    known = (STOCK_SETTINGS.get(base.__name__) for base in host.__mro__)
    settings = next(filter(None, known), dict(loss_cls=_FOCAL))
    node.update(deepcopy(settings))
    changes.append(f'{path}: {_shown(node["type"])} with {node["loss_cls"]["type"]}')
    return node


def _box_head(node: dict, path: str, changes: list[str]) -> dict:
    from mmdet.models.roi_heads.bbox_heads import BBoxHead

    host = model_type(node.get('type'))
    if not (isinstance(host, type) and issubclass(host, BBoxHead)):
        raise UserError(
            f'{path}.loss_cls.type={node["loss_cls"]["type"]!r}, but {node.get("type")!r} is none '
            'of the heads that mmrank serves, so no stock head with the same scores is known.\n  '
            f'Fix: {_remedy("model")}'
        )
    node['loss_cls'] = dict(
        type='mmdet.CrossEntropyCustomLoss',
        use_sigmoid=True,
        num_classes=node.get('num_classes', _BOX_CLASSES),
        loss_weight=1.0,
    )
    changes.append(f'{path}: {_shown(node["type"])} with {node["loss_cls"]["type"]}')
    return node


def _shown(kind: Any) -> str:
    return f'{kind.__module__}.{kind.__qualname__}' if callable(kind) else kind


def _without_own_imports(node: Any) -> Any:
    """``custom_imports`` without modules of mmrank."""
    if not isinstance(node, Mapping):
        return node
    imports = node.get('imports') or []
    imports = [imports] if isinstance(imports, str) else imports
    kept = [name for name in imports if name.partition('.')[0] != NAME]
    return dict(node, imports=kept) if kept else _DROPPED


def _mentions(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Entries whose key or text names mmrank."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            below = f'{path}.{key}' if path else str(key)
            if NAME in str(key).lower():
                yield below, value
            yield from _mentions(value, below)
    elif isinstance(node, list | tuple):
        for i, item in enumerate(node):
            yield from _mentions(item, f'{path}.{i}')
    elif isinstance(node, str) and NAME in node.lower():
        yield path, node
