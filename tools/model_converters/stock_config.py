"""The config of a detector without mmrank: what a test of it reads, entry by entry."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmrank.errors import UserError
from mmrank.losses.registered import model_type

#: What no stock file may hold.
NAME = 'mmrank'
#: Settings that a test reads; those of a training go.
_OF_A_TEST = (
    'test_dataloader',
    'test_evaluator',
    'test_cfg',
    'tta_model',
    'tta_pipeline',
    'visualizer',
    'env_cfg',
    'custom_imports',
)
#: Losses by which heads of mmdet with a sigmoid per class are built; a test computes none.
_FOCAL = dict(type='mmdet.FocalLoss', use_sigmoid=True)
_SIGMOID = dict(type='mmdet.CrossEntropyCustomLoss', use_sigmoid=True)
#: Arguments that the heads of mmrank have and stock heads have not.
_OWN_ARGUMENTS = ('centre_scores', 'balance_boxes', 'num_layers', 'federated', 'box_average')
#: Of mmdet's ``BBoxHead``.
_BOX_CLASSES = 80
#: What else has a stock counterpart, which takes its arguments.
_COUNTERPARTS = {
    'CheckedCocoDataset': 'mmdet.CocoDataset',
    'CocoMetric': 'mmdet.CocoMetric',
    'LVISDataset': 'mmdet.LVISV1Dataset',
    'one_size_collate': 'default_collate',
}
#: Transforms that check and change nothing.
_CHECKS = ('CheckFinite',)
_DROPPED = object()


def stock_config(cfg: Config) -> tuple[Config, list[str]]:
    """Translate what a test reads of a config, and describe each entry that changed."""
    scope = cfg.get('default_scope') or 'mmdet'
    changes: list[str] = []
    settings = cfg.to_dict()
    kept = {key: settings[key] for key in ('model', *_OF_A_TEST) if key in settings}
    with DefaultScope.overwrite_default_scope(scope):
        stock = dict(_entries(kept, '', changes))
    stock['default_scope'] = scope
    for path, value in _mentions(stock, ''):
        what = f'{path}={value!r} of the config names {NAME}, and a stock config must not'
        raise UserError(what, f'--cfg-options {path}=ANOTHER')
    return Config(stock), changes


def _entries(node: Mapping, path: str, changes: list[str]) -> Iterator[tuple[str, Any]]:
    """The translated entries of a dict, without those that go."""
    for key, value in node.items():
        below = f'{path}.{key}' if path else str(key)
        value = _translate(value, below, changes)
        if value is not _DROPPED:
            yield key, value


def _translate(node: Any, path: str, changes: list[str]) -> Any:
    if path == 'custom_imports' and isinstance(node, Mapping):
        imports = node.get('imports') or []
        imports = [imports] if isinstance(imports, str) else imports
        kept = [name for name in imports if name.partition('.')[0] != NAME]
        return dict(node, imports=kept) if kept else _DROPPED
    if path.startswith('model') and path.endswith('train_cfg'):
        return None
    if isinstance(node, type):
        return _shown(node)
    if isinstance(node, list | tuple):
        items = [_translate(item, f'{path}.{i}', changes) for i, item in enumerate(node)]
        return type(node)(item for item in items if item is not _DROPPED)
    if not isinstance(node, Mapping):
        return node
    name = _own_name(node.get('type'))
    if name in _CHECKS:
        changes.append(f'{path}: without {NAME}.{name}')
        return _DROPPED
    loss = node.get('loss_cls')
    if name is not None:
        node = _counterpart(name, dict(node), path, changes)
    elif isinstance(loss, Mapping) and _own_name(loss.get('type')):
        node = _box_head(dict(node), path, changes)
    return dict(_entries(node, path, changes))


def _own_name(kind: Any) -> str | None:
    """Name of a class of mmrank; None for others."""
    kind = _shown(kind)
    is_own = isinstance(kind, str) and kind.startswith(f'{NAME}.')
    return kind.rpartition('.')[2] if is_own else None


def _counterpart(name: str, node: dict, path: str, changes: list[str]) -> dict:
    """The entry of a stock config in place of one of mmrank."""
    if 'head_type' in node:
        node = {key: value for key, value in node.items() if key not in _OWN_ARGUMENTS}
        node['type'] = node.pop('head_type')
        if name == 'ListwiseBBoxHead':
            return _box_head(node, path, changes)
        if 'loss_cls' in node:
            node['loss_cls'] = _FOCAL
        changes.append(f'{path}: {_shown(node["type"])}')
        return node
    if name in _COUNTERPARTS:
        kind = _COUNTERPARTS[name]
        changes.append(f'{path}: {kind} for {NAME}.{name}')
        return {**node, 'type': kind}
    fix = f'a config that inherits from this one and sets {path} to a class of mmdet'
    if path.startswith('model'):
        fix = f'none for these weights: keep the config of the training, and {NAME} installed'
    raise UserError(f'{path}.type={NAME + "." + name!r} has no counterpart in mmdet.\n  Fix: {fix}')


def _box_head(node: dict, path: str, changes: list[str]) -> dict:
    from mmdet.models.roi_heads.bbox_heads import BBoxHead

    host = model_type(node.get('type'))
    if not (isinstance(host, type) and issubclass(host, BBoxHead)):
        raise UserError(
            f'{path}.loss_cls.type={node["loss_cls"]["type"]!r}, but {node.get("type")!r} is none '
            'of the heads that mmrank serves, so no stock head with the same scores is known.\n  '
            f'Fix: keep the config of the training, and {NAME} installed'
        )
    node['loss_cls'] = dict(_SIGMOID, num_classes=node.get('num_classes', _BOX_CLASSES))
    changes.append(f'{path}: {_shown(node["type"])} with {node["loss_cls"]["type"]}')
    return node


def _shown(kind: Any) -> str:
    return f'{kind.__module__}.{kind.__qualname__}' if callable(kind) else kind


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
