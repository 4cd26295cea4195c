"""Whether a checkpoint fits the model and the training that load it."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mmengine.model import BaseTTAModel
from mmengine.optim import OptimWrapperDict
from tabulate import tabulate
from torch import nn

from mmrank.engine.runners import unwrap_model
from mmrank.state import SampleState

#: Parts of a config that decide what is trained, and settings in them that do not.
_TRAINING = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler')
_FREE_SETTINGS = ('max_epochs', 'max_iters', 'num_workers', 'persistent_workers', 'val_interval')
#: Rows of a table that a terminal still shows at once.
_MOST_ROWS = 30


class Difference(NamedTuple):
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

    Left out are a missing ``num_batches_tracked`` and per-sample state that is to start fresh.
    """
    model = bare_model(model)
    fresh = tuple(
        f'{name}.' if name else ''
        for name, module in model.named_modules()
        if isinstance(module, SampleState) and not module.load_state
    )
    expected = _shapes(model.state_dict())
    saved = {key.removeprefix('module.'): shape for key, shape in _shapes(state).items()}
    found = []
    for key in {**expected, **saved}:
        here = expected.get(key)
        there = saved.get(key)
        is_optional = there is None and key.endswith('num_batches_tracked')
        if here == there or is_optional or key.startswith(fresh):
            continue
        kind = 'missing' if there is None else 'unexpected' if here is None else 'mismatched'
        texts = ('' if shape is None else str(shape) for shape in (there, here))
        found.append(Difference(key, kind, *texts))
    return found


def _shapes(state: Mapping) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in state.items() if hasattr(value, 'shape')}


def compare_training(
    checkpoint: Mapping, optim_wrapper: Any, num_schedulers: int, has_ema: bool
) -> Iterator[Difference]:
    """Compare optimiser, number of schedulers and average of the weights for a resume."""
    if 'optimizer' not in checkpoint:
        yield Difference('optimizer', 'missing', '', type(optim_wrapper).__name__)
    elif not isinstance(optim_wrapper, OptimWrapperDict):
        optimizer = optim_wrapper.optimizer
        saved = checkpoint['optimizer'].get('param_groups', [])
        groups = optimizer.param_groups
        other = ''
        if len(saved) != len(groups):
            other = f'{len(saved)} parameter groups, not {len(groups)}'
        elif lacking := {x for there, here in zip(saved, groups) for x in here.keys() - there}:
            other = f'an optimizer without {", ".join(sorted(lacking))}'
        if other:
            yield Difference('optimizer', 'mismatched', other, type(optimizer).__name__)
    schedulers = checkpoint.get('param_schedulers', [])
    if isinstance(schedulers, list) and len(schedulers) != num_schedulers:
        number = str(len(schedulers))
        yield Difference('param_schedulers', 'mismatched', number, str(num_schedulers))
    if has_ema and 'ema_state_dict' not in checkpoint:
        yield Difference('ema_state_dict', 'missing', '', 'EMAHook')
    elif not has_ema and 'ema_state_dict' in checkpoint:
        yield Difference('ema_state_dict', 'unexpected', 'EMAHook', '')


def other_classes(model: nn.Module, differences: Iterable[Difference], checkpoint: Mapping) -> str:
    """Explain, if it can, differences that come from another number of classes, else ''."""
    meta = checkpoint.get('meta') or {}
    names = (meta.get('dataset_meta') or {}).get('classes')
    if not isinstance(names, list | tuple):
        return ''
    changed = [item.key for item in differences if item.kind == 'mismatched']
    for name, module in bare_model(model).named_modules():
        number = getattr(module, 'num_classes', None)
        is_changed = any(key.startswith(f'{name}.') for key in changed)
        if type(number) is int and number != len(names) and 'head' in name and is_changed:
            shown = ', '.join(map(str, names[:6])) + (', ...' if len(names) > 6 else '')
            return (
                f'It was trained on {len(names)} classes ({shown}), but '
                f'{name}.num_classes={number}.\n  Fix: model.{name}.num_classes={len(names)} and '
                'metainfo=dict(classes=(...)) of the data sets, or train on your classes first: '
                'mmrank train CONFIG --cfg-options load_from=CHECKPOINT takes all that fits'
            )
    return ''


def classes_in_other_order(checkpoint: Mapping, dataset: Any) -> str:
    """Say that a data set has the classes of a checkpoint in another order, else ''."""
    meta = checkpoint.get('meta') or {}
    saved = (meta.get('dataset_meta') or {}).get('classes') or ()
    names = getattr(dataset, 'metainfo', {}).get('classes') or ()
    if [*saved] == [*names] or sorted(map(str, saved)) != sorted(map(str, names)):
        return ''
    return (
        f'was trained on classes in another order, {saved!s:.300}, than {names!s:.300} of the data '
        "set.\n  Fix: its order in metainfo.classes of the data sets and in 'categories' of files"
    )


def changed_settings(saved: str, config: str) -> str:
    """A line for each setting of the training that two texts of configs do not share."""
    try:
        before, now = (dict(_settings(ast.parse(text))) for text in (saved, config))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ''
    keys = [key for key in {**before, **now} if key.startswith(_TRAINING)]
    keys = [key for key in keys if key.rpartition('.')[2] not in _FREE_SETTINGS]
    return ''.join(
        f'\n  {key}={now.get(key, "absent")}, in the checkpoint {before.get(key, "absent")}'
        for key in keys
        if before.get(key) != now.get(key)
    )


def _settings(node: ast.AST, key: str = '') -> Iterator[tuple[str, str]]:
    """Settings in the text of a config, which is not run, by their keys."""
    items: Iterable[tuple] = ()
    if isinstance(node, ast.Module):
        items = [(ast.unparse(x.targets[0]), x.value) for x in node.body if hasattr(x, 'targets')]
    elif isinstance(node, ast.Call):
        items = [(x.arg, x.value) for x in node.keywords]
    elif isinstance(node, ast.List | ast.Tuple):
        items = enumerate(node.elts)
    else:
        yield key, ast.unparse(node)
    for name, value in items:
        yield from _settings(value, f'{key}.{name}'.removeprefix('.'))


def missing_centre(differences: Iterable[Difference], state: Mapping) -> str:
    """Explain what a model loses that leaves out the centre of a ranking loss, else ''."""
    for item in differences:
        if item.kind != 'unexpected' or not re.search(
            r'loss_cls\.(.*\.)?mean_positive\.mean$', item.key
        ):
            continue
        value = state.get(item.key, state.get(f'module.{item.key}'))
        if not value.any():  # a centre of 0 shifts no score
            continue
        numbers = ', '.join(f'{x:.2f}' for x in value.reshape(-1)[:4].tolist())
        place = item.key.partition('.loss_cls.')[0]
        return (
            f'The head that was trained shows scores around {item.key} = {numbers} as 0.5, and '
            f"{place} of this config does not.\n  Fix: {place} = dict(type='mmrank.ListwiseHead', "
            "head_type='mmdet.<its type>', loss_cls=...), or a stock checkpoint by "
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
