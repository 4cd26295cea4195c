"""Compare what users of the package rely on between two commits.

A change that only moves or shortens code leaves all of it as it is::

    git worktree add ../before COMMIT
    PYTHONPATH=../before python tests/behaviour_snapshot.py ../before before.pt
    PYTHONPATH=. python tests/behaviour_snapshot.py . after.pt
    PYTHONPATH=. python tests/behaviour_snapshot.py --compare before.pt after.pt

A snapshot holds the keys and options of the registries, the names of ``mmrank.functional``,
``mmrank.losses`` and ``mmrank.state``, values, gradients and state of each registered loss (each
setting and batch of ``tests/helpers/registered_losses.py``, float32 and float64, two steps), and
the parameter names and shapes of the model of each config. The comparison loads the state of the
first commit strictly into the losses of the second, too, and takes a step with it.
"""

import argparse
import inspect
import sys
import warnings
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

ROWS = 3000


def registry_entries() -> dict:
    """Keys of each registry, and the options of each registered class with its bases."""
    found = {}
    registry = import_module('mmrank.registry')
    for node in registry.__all__:
        children = getattr(registry, node)
        children.import_from_location()
        for name, entry in children.module_dict.items():
            found[f'registered {node} {name}'] = True
            chain = entry.__mro__ if inspect.isclass(entry) else [entry]
            for cls in chain:
                if not cls.__module__.startswith('mmrank'):
                    continue
                target = cls.__dict__.get('__init__') if inspect.isclass(cls) else cls
                if not callable(target):
                    continue
                for option in inspect.signature(target).parameters.values():
                    if option.name != 'self' and option.kind is not option.VAR_KEYWORD:
                        found[f'option {node} {name} {option.name}'] = True
    return found


def public_names() -> dict:
    """Names that the packages of users export."""
    return {
        f'name {module}.{name}': True
        for module in ('mmrank.functional', 'mmrank.losses', 'mmrank.state')
        for name in import_module(module).__all__
    }


def steps(case, loss, dtype: torch.dtype, seeds=(1, 2)) -> list[Tensor]:
    """Value and gradients of steps on small batches and, for rows of scores, on a large one."""
    from registered_losses import CLASSES

    found = []
    for seed in seeds:
        batches = [case.batch(seed=seed)]
        if case.kind == 'rows' and len(batches[0].leaves) == 1 and len(batches[0].fixed) == 2:
            g = torch.Generator().manual_seed(seed)
            scores = torch.randn(ROWS, CLASSES, generator=g, dtype=torch.float64) * 3
            labels = torch.randint(10 * CLASSES, (ROWS,), generator=g).clamp(max=CLASSES)
            if not getattr(loss, 'use_sigmoid', True):
                labels = labels.clamp(max=CLASSES - 1)
            if not getattr(loss, 'keeps_samples', False):
                fixed = (labels, torch.arange(ROWS))
                batches.append(replace(batches[0], leaves=(scores,), fixed=fixed))
        for batch in batches:
            try:
                value, gradients = batch.mapped(lambda x: x.to(dtype)).gradients(loss)
            except ValueError as error:
                if batch is batches[0]:
                    raise
                found.append(str(error))  # A sorter refuses lists longer than it has seen.
                continue
            found += [value, *gradients]
    return found


def loss_entries() -> dict:
    """Two steps and the state of each registered loss."""
    from registered_losses import cases

    found = {}
    for case in cases():
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(0)
            loss = case.build()
            try:
                taken = steps(case, loss, dtype)
            except (TypeError, ValueError, RuntimeError) as error:
                found[f'loss {case} {dtype}'] = f'{type(error).__name__}: {error}'
                continue
            state = deepcopy(loss.state_dict())
            found[f'loss {case} {dtype}'] = dict(
                steps=taken, state=state, resumed=steps(case, loss, dtype, seeds=(3,))
            )
    return found


def config_entries(root: Path) -> dict:
    """Parameter and buffer names and shapes of each config's model."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    found = {}
    for path in sorted((root / 'configs').glob('[!_]*/**/*.py')):
        name = str(path.relative_to(root / 'configs'))
        try:
            cfg = Config.fromfile(path)
        except Exception as error:
            found[f'config {name}'] = f'{type(error).__name__}'
            continue
        if 'model' not in cfg:
            continue
        init_default_scope(cfg.get('default_scope', 'mmengine'))
        if 'data_preprocessor' in cfg:
            cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
        try:
            with torch.device('meta'):
                model = MODELS.build(deepcopy(cfg.model))
        except Exception:
            try:
                model = MODELS.build(deepcopy(cfg.model))
            except Exception as error:  # It needs a file that is not on this machine.
                found[f'config {name}'] = type(error).__name__
                continue
        found[f'config {name}'] = [
            f'{key} {tuple(getattr(x, "shape", ()))}' for key, x in model.state_dict().items()
        ]
    return found


def difference(a, b) -> float:
    """Largest difference of two nested values, in units of the largest number; inf: other forms."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float('inf')
        if torch.equal(a, b) or a.numel() == 0:
            return 0.0
        a, b = a.double(), b.double()
        gap = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
        return float(gap.max() / a.abs().nan_to_num(0, 0, 0).max().clamp(min=1e-30))
    if isinstance(a, dict) and isinstance(b, dict):
        return max((difference(a[k], b[k]) for k in a), default=0.0) if [*a] == [*b] else 9e9
    if isinstance(a, list) and isinstance(b, list):
        return max(map(difference, a, b), default=0.0) if len(a) == len(b) else 9e9
    return 0.0 if a == b else float('inf')


def resumed_difference(key: str, before: dict) -> float:
    """Difference of a step from the state of the first commit, loaded strictly."""
    from registered_losses import cases

    name, dtype = key.removeprefix('loss ').rsplit(' ', 1)
    case = next(case for case in cases() if str(case) == name)
    loss = case.build()
    loss.load_state_dict(before['state'], strict=True)
    dtype = getattr(torch, dtype.removeprefix('torch.'))
    return difference(before['resumed'], steps(case, loss, dtype, seeds=(3,)))


def compare(before: dict, after: dict) -> int:
    """Print the differences; 1 if there is any but additions."""
    removed = sorted(before.keys() - after.keys())
    changed = {}
    for key in sorted(before.keys() & after.keys()):
        gap = difference(before[key], after[key])
        if gap == 0 and key.startswith('loss') and isinstance(before[key], dict):
            gap = resumed_difference(key, before[key])
        if gap:
            changed[key] = gap
    for key in sorted(after.keys() - before.keys()):
        print(f'added:   {key}')
    for key in removed:
        print(f'removed: {key}')
    for key, gap in changed.items():
        print(f'changed: {key}: {gap:.1e}')
    for kind in sorted({key.split()[0] for key in before}):
        of_kind = [key for key in before if key.split()[0] == kind]
        gone = sum(key in removed for key in of_kind)
        other = sum(key in changed for key in of_kind)
        print(f'{kind}: {len(of_kind)} before, {gone} removed, {other} changed')
    return int(bool(removed or changed))


def main() -> int:
    """Write a snapshot, or compare two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--compare', action='store_true', help='read both; print differences')
    parser.add_argument('first', type=Path, help='checkout; with --compare a snapshot')
    parser.add_argument('second', type=Path, help='snapshot')
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    root = Path(import_module('mmrank').__file__).resolve().parents[1]
    sys.path.insert(0, str(root / 'tests' / 'helpers'))
    if args.compare:
        return compare(*(torch.load(x, weights_only=False) for x in (args.first, args.second)))
    if args.first.resolve() != root:
        parser.error(f'mmrank is that of {root}; set PYTHONPATH={args.first}')
    entries = {**registry_entries(), **public_names(), **loss_entries()}
    torch.save({**entries, **config_entries(root)}, args.second)
    print(f'{len(entries)} entries')
    return 0


if __name__ == '__main__':
    sys.exit(main())
