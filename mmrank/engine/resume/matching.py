"""Whether a checkpoint fits the model and the training that load it."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mmengine.model import BaseTTAModel
from mmengine.optim import OptimWrapperDict
from tabulate import tabulate
from torch import nn

from mmrank.engine.runners import unwrap_model
from mmrank.state import SampleState

#: Rows of a table that a terminal still shows at once.
_MOST_ROWS = 30


@dataclass(frozen=True)
class Difference:
    """A key of ``kind`` missing or unexpected in the checkpoint, or mismatched, and both values."""

    key: str
    kind: str
    saved: str = ''
    expected: str = ''


def bare_model(model: nn.Module) -> nn.Module:
    """The model that a checkpoint holds, inside its wrappers."""
    model = unwrap_model(model)
    return bare_model(model.module) if isinstance(model, BaseTTAModel) else model


def model_state(checkpoint: Mapping) -> Mapping:
    """The model's state in a checkpoint, which may be nothing else."""
    return checkpoint.get('state_dict', checkpoint)


def compare_states(model: nn.Module, state: Mapping) -> list[Difference]:
    """Compare keys and shapes of a model and a saved state; a prefix ``module.`` does not count.

    Differences come in the order of the model, then of the state. Left out are a missing
    ``num_batches_tracked``, which old checkpoints lack, and per-sample state that is set to start
    fresh.
    """
    model = bare_model(model)
    fresh = tuple(
        f'{name}.' if name else ''
        for name, module in model.named_modules()
        if isinstance(module, SampleState) and not module.load_state
    )
    expected = {k: shape for k, shape in _shapes(model.state_dict()) if not k.startswith(fresh)}
    saved = {k.removeprefix('module.'): shape for k, shape in _shapes(state)}
    found = []
    for key, shape in expected.items():
        if key not in saved:
            if not key.endswith('num_batches_tracked'):
                found.append(Difference(key, 'missing', '', str(shape)))
        elif saved[key] != shape:
            found.append(Difference(key, 'mismatched', str(saved[key]), str(shape)))
    for key, shape in saved.items():
        if key not in expected and not key.startswith(fresh):
            found.append(Difference(key, 'unexpected', str(shape), ''))
    return found


def _shapes(state: Mapping) -> list[tuple[str, tuple[int, ...]]]:
    # A loss loads the scalars of earlier versions, of shape (), as shape (1,).
    shapes = ((key, value.shape) for key, value in state.items() if hasattr(value, 'shape'))
    return [(key, tuple(shape) or (1,)) for key, shape in shapes]


def compare_training(
    checkpoint: Mapping, optim_wrapper: Any, num_schedulers: int, has_ema: bool
) -> list[Difference]:
    """Compare optimiser, number of schedulers and average of the weights for a resume."""
    found, pairs = [], {}
    if 'optimizer' not in checkpoint:
        found.append(Difference('optimizer', 'missing'))
    elif not isinstance(optim_wrapper, OptimWrapperDict):
        pairs['optimizer'] = _optimizers(checkpoint, optim_wrapper.optimizer)
    saved = checkpoint.get('param_schedulers', [])
    if isinstance(saved, list):
        pairs['param_schedulers'] = str(len(saved)), str(num_schedulers)
    found += [
        Difference(key, 'mismatched', *pair) for key, pair in pairs.items() if len({*pair}) > 1
    ]
    if has_ema and 'ema_state_dict' not in checkpoint:
        found.append(Difference('ema_state_dict', 'missing', '', 'EMAHook'))
    if not has_ema and 'ema_state_dict' in checkpoint:
        found.append(Difference('ema_state_dict', 'unexpected', 'EMAHook'))
    return found


def _optimizers(checkpoint: Mapping, optimizer) -> tuple[str, str]:
    """Describe the optimisers of a checkpoint and of a run; equal where they fit."""
    name = type(optimizer).__name__
    saved = saved_optimizer(checkpoint.get('meta', {}).get('cfg', ''))
    if saved is not None and saved != name:
        return saved, name
    groups = checkpoint['optimizer'].get('param_groups', [])
    if len(groups) != len(optimizer.param_groups):
        return f'{len(groups)} parameter groups', f'{len(optimizer.param_groups)} parameter groups'
    lacking = {
        setting
        for there, here in zip(groups, optimizer.param_groups)
        for setting in here.keys() - there.keys()
    }
    return f'an optimizer without {", ".join(sorted(lacking))}' if lacking else name, name


def saved_optimizer(config: str) -> str | None:
    """Name, without its scope, of the optimiser in the config text of a checkpoint."""
    node = _within(read_saved_config(config), 'optim_wrapper', 'optimizer', 'type')
    return node.rpartition('.')[2] if isinstance(node, str) else None


def _within(node: Any, *keys: str) -> Any:
    """The value at a path of keys; None where there is none."""
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def other_classes(model: nn.Module, differences: Iterable[Difference], checkpoint: Mapping) -> str:
    """Explain, if it can, differences that come from another number of classes, else ''."""
    node = _within(checkpoint, 'meta', 'dataset_meta', 'classes')
    if not isinstance(node, list | tuple):
        return ''
    changed = [d.key for d in differences if d.kind == 'mismatched']
    for name, module in bare_model(model).named_modules():
        number = getattr(module, 'num_classes', None)
        if (
            type(number) is int
            and number != len(node)
            and 'head' in name
            and any(key.startswith(f'{name}.') for key in changed)
        ):
            shown = ', '.join(map(str, node[:6])) + (', ...' if len(node) > 6 else '')
            return (
                f'It was trained on {len(node)} classes ({shown}), but '
                f'{name}.num_classes={number}.\n  Fix: model.{name}.num_classes={len(node)} and '
                'metainfo=dict(classes=(...)) of the data sets, to test on its classes; or train '
                'on yours first: tools/train.py CONFIG --cfg-options load_from=CHECKPOINT takes '
                'all that fits'
            )
    return ''


def missing_centre(differences: Iterable[Difference], state: Mapping) -> str:
    """Explain what a model loses that leaves out the centre of a ranking loss, else ''."""
    for item in differences:
        if item.kind != 'unexpected' or not re.search(
            r'loss_cls\.(.*\.)?mean_positive\.mean$', item.key
        ):
            continue
        value = state.get(item.key, state.get(f'module.{item.key}'))
        if not value.any():  # as publish_model.py once wrote it: the bias holds the centre
            continue
        numbers = ', '.join(f'{x:.2f}' for x in value.reshape(-1)[:4].tolist())
        place = item.key.partition('.loss_cls.')[0]
        return (
            f'The head that was trained shows scores around {item.key} = '
            f'{numbers}{", ..." if value.numel() > 4 else ""} as 0.5. {place} of this config does '
            'not subtract it, so the scores are off and score_thr keeps the wrong boxes, or none.\n'
            f"  Fix: {place} = dict(type='mmrank.ListwiseHead', head_type='mmdet.<its type>', "
            'loss_cls=...), as in the config of the training, or make a stock checkpoint: '
            'tools/model_converters/to_stock.py CONFIG CHECKPOINT OUT'
        )
    return ''


def differences_table(differences: list[Difference]) -> str:
    """Show differences as a table, the first 30, and count the others."""
    rows = [(item.kind, item.key, item.saved, item.expected) for item in differences[:_MOST_ROWS]]
    text = tabulate(rows, headers=['', 'key', 'checkpoint', 'this run'], tablefmt='simple')
    others = Counter(item.kind for item in differences[_MOST_ROWS:])
    if others:
        text += '\nand ' + ', '.join(f'{n} {k}' for k, n in others.items())
    return text


def read_saved_config(text: str) -> dict[str, Any]:
    """Settings in ``meta['cfg']`` that are literals or ``dict(...)``: parsed, not run."""
    settings = {}
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return settings
    for statement in statements:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                settings[statement.targets[0].id] = _literal(statement.value)
            except (ValueError, TypeError, RecursionError):
                continue
    return settings


def _literal(node: ast.AST) -> Any:
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id == 'dict'):
            raise ValueError('a call of something else than dict')
        if node.args or any(k.arg is None for k in node.keywords):
            raise ValueError('a dict of something else than keywords')
        return {k.arg: _literal(k.value) for k in node.keywords}
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError('a dict with **')
        keys = [ast.literal_eval(key) for key in node.keys]
        return dict(zip(keys, map(_literal, node.values)))
    if isinstance(node, ast.List | ast.Set):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_literal(item) for item in node.elts)
    if isinstance(node, ast.Name) and node.id in ('inf', 'nan'):
        return float(node.id)
    return ast.literal_eval(node)
