"""Print what users of the package rely on, as JSON, and compare two of it.

A change that only moves code must leave the output as it is::

    git worktree add ../before COMMIT
    PYTHONPATH=../before python tests/behaviour_snapshot.py > before.json
    PYTHONPATH=. python tests/behaviour_snapshot.py --compare before.json

Entries: keys and signatures of the registries, names and signatures of ``mmrank.functional``,
value, gradient and state of each registered loss for a seed (bit for bit), and the parameter names
of each config's model.
"""

import argparse
import contextlib
import hashlib
import inspect
import json
import re
import sys
import warnings
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
CLASSES, SAMPLES, WIDTH = 3, 40, 8
REGISTRIES = (
    'DATASETS',
    'DATA_SAMPLERS',
    'FUNCTIONS',
    'HOOKS',
    'METRICS',
    'MODELS',
    'OPTIMIZERS',
    'TASK_UTILS',
    'TRANSFORMS',
)
COUNTED = dict(class_counts=[25, 10, 5])
PER_SAMPLE = dict(num_samples=SAMPLES)
#: Arguments that have no default, and other settings worth a look.
SETTINGS = {
    'APLoss': [{}, dict(mode='per_class')],
    'ALRPLoss': [{}, dict(mode='per_class', balance=None)],
    'AUCLoss': [{}, dict(mode='per_class')],
    'BimodalISogCLRLoss': [PER_SAMPLE],
    'BlackBoxAPLoss': [{}, dict(mode='per_class')],
    'ClassBalancedCELoss': [dict(num_classes=CLASSES, **COUNTED)],
    'DRLoss': [{}, dict(mode='per_class')],
    'ISogCLRLoss': [PER_SAMPLE],
    'InBatchLoss': [
        dict(mode=mode, pointwise=pointwise)
        for mode in ('unbiased', 'unbiased_omega', 'popularity', 'pos_neg', 'in_batch', 'sogram')
        for pointwise in ('square', 'logistic')
    ],
    'LDAMLoss': [
        dict(num_classes=CLASSES, **COUNTED),
        dict(num_classes=CLASSES, use_sigmoid=False, **COUNTED),
    ],
    'ListwiseAPLoss': [{}, dict(mode='per_class')],
    'PMLLoss': [dict(loss=dict(type='TripletMarginLoss')), dict(loss=dict(type='FastAPLoss'))],
    'RankSortLoss': [{}, dict(mode='per_class')],
    'SOAPLoss': [dict(num_samples=SAMPLES, num_classes=CLASSES)],
    'SOPRCLoss': [
        {},
        dict(num_classes=CLASSES, mode='per_class'),
        dict(num_classes=CLASSES, lam1=0.1, lam2=0.1, rank_gradient=True),
    ],
    'SmoothAPLoss': [{}, dict(mode='per_class')],
    'SogCLRLoss': [PER_SAMPLE],
    'StableAPLoss': [{}, dict(rho=1.0), dict(num_classes=CLASSES, mode='per_class', rho=1.0)],
    'SumLoss': [dict(losses=[dict(type='StableAPLoss'), dict(type='AUCLoss')], weights=[1.0, 0.5])],
}


def clean(text: str) -> str:
    """Leave module paths and addresses out of a signature."""
    text = re.sub(r'\bmmrank(\.\w+)*\.(?=\w)', '', text)
    return re.sub(r' at 0x[0-9a-f]+', '', text)


def signature(entry: object) -> str:
    """Signature of a function, or of a class and its ``forward``."""
    try:
        text = str(inspect.signature(entry))
    except (TypeError, ValueError):
        return ''
    if inspect.isclass(entry) and issubclass(entry, nn.Module):
        text += ' forward' + str(inspect.signature(entry.forward))
    return clean(text)


def registry_entries() -> dict[str, str]:
    """Signature of each registered class, by registry and name."""
    registry = import_module('mmrank.registry')
    found = {}
    for node in REGISTRIES:
        children = getattr(registry, node)
        children.import_from_location()
        for name, entry in children.module_dict.items():
            found[f'registry {node} {name}'] = signature(entry)
    return found


def functional_names() -> dict[str, str]:
    """Signature of each name that ``mmrank.functional`` exports."""
    functional = import_module('mmrank.functional')
    return {
        f'functional {name}': signature(getattr(functional, name)) for name in functional.__all__
    }


def digest(*tensors: Tensor | None) -> str:
    """Hash of dtypes, shapes and every bit of some tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            sha.update(b'none')
            continue
        tensor = tensor.detach().contiguous()
        sha.update(f'{tensor.dtype}{tuple(tensor.shape)}'.encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def random(seed: int, *shape: int) -> Tensor:
    """Normal deviates that need a gradient."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g).requires_grad_()


def calls(loss: nn.Module, seed: int):
    """Yield the calls that a loss takes: leaves that need a gradient, value.

    A loss is known by what it accepts, so a new one needs no line here.
    """
    taken = inspect.signature(loss.forward).parameters
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (24,), generator=g)
    idx = torch.randperm(SAMPLES, generator=g)[:24]
    if 'cls_score' in taken:
        leaf = random(seed, 24, CLASSES)
        target = torch.randint(0, 2 * CLASSES, (24,), generator=g)
        target = target.clamp(max=CLASSES)
        if not getattr(loss, 'use_sigmoid', True):
            target = labels
        boxes = torch.rand(int((target < CLASSES).sum()), generator=g)
        boxes.requires_grad_()
        options = {key: value for key, value in (('sample_idx', idx),) if key in taken}
        key = {'quality': 'quality', 'loss': 'box_loss'}
        key = key.get(getattr(loss, 'box_input', None))
        if key:
            options[key] = boxes
        yield [leaf, boxes], loss(leaf, target, **options)
    if 'view1' in taken:
        leaves = [random(seed + i, 24, WIDTH) for i in range(2)]
        yield leaves, loss(*leaves, sample_idx=idx)
    if 'rows' in taken:
        pairs = torch.arange(10), torch.arange(10) % 7
        loss.set_pairs(*pairs, (10, 7))
        leaves = [random(seed + i, 6, WIDTH) for i in range(2)]
        yield leaves, loss(*leaves, pairs[0][2:8], pairs[1][2:8])
    if 'is_positive' in taken:
        leaves = [random(seed + i, 6, WIDTH) for i in range(2)]
        order = torch.arange(6)
        yield leaves, loss(*leaves, order % 2 == 0, order, order)
    if hasattr(loss, 'embedding_loss') and not getattr(loss, 'box_input', None):
        leaf = random(seed, 24, WIDTH)
        unit = nn.functional.normalize(leaf)
        batch = embedding_batch().of_one_batch(unit, labels)
        try:
            yield [leaf], loss.embedding_loss(batch)
        except (TypeError, ValueError) as error:
            if 'retrieval' not in str(error):
                raise


def embedding_batch() -> type:
    """The class of a retrieval batch, of an old commit or a new one."""
    for place in ('mmrank.losses', 'mmrank.losses'):
        try:
            return import_module(place).EmbeddingBatch
        except (ImportError, AttributeError):
            continue
    raise ImportError('EmbeddingBatch is in neither place')


def total(value: Tensor | dict) -> Tensor:
    """What is trained on."""
    return sum(value.values()) if isinstance(value, dict) else value


def loss_results() -> dict[str, str]:
    """Hashes of two steps of each registered loss with each setting."""
    models = import_module('mmrank.registry').MODELS
    models.import_from_location()
    found = {}
    for name in sorted(models.module_dict):
        if not name.endswith('Loss'):
            continue
        for settings in SETTINGS.get(name, [{}]):
            loss = models.build(dict(type=name, **settings))
            hashes = []
            for seed in (1, 2):
                for leaves, value in calls(loss, seed):
                    value = total(value)
                    value.backward()
                    grads = [leaf.grad for leaf in leaves]
                    hashes.append(digest(value, *grads))
            if not hashes:
                raise RuntimeError(f'{name} was not called')
            state = loss.state_dict()
            tensors = [x for x in state.values() if isinstance(x, Tensor)]
            key = f'loss {name} {json.dumps(settings, sort_keys=True)}'
            found[key] = ' '.join([*hashes, digest(*tensors), *state])
    return found


def config_entries() -> dict[str, str]:
    """Hash of the parameter and buffer names of each config's model."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    found = {}
    for path in sorted((ROOT / 'configs').glob('[!_]*/*.py')):
        if path.parent.name == 'tutorials':  # some are scripts
            continue
        cfg = Config.fromfile(path)
        init_default_scope(cfg.get('default_scope', 'mmengine'))
        if 'data_preprocessor' in cfg:
            cfg.model.setdefault('data_preprocessor', cfg.data_preprocessor)
        key = f'config {path.relative_to(ROOT / "configs")}'
        try:
            with torch.device('meta'):
                model = MODELS.build(deepcopy(cfg.model))
        except Exception:
            try:
                model = MODELS.build(deepcopy(cfg.model))
            except Exception as error:
                # It needs a file that is not on this machine.
                found[key] = type(error).__name__
                continue
        names = [
            f'{name} {tuple(getattr(x, "shape", ()))}' for name, x in model.state_dict().items()
        ]
        sha = hashlib.sha256('\n'.join(names).encode()).hexdigest()[:16]
        found[key] = f'{len(names)} {sha}'
    return found


def snapshot(parts: list[str]) -> dict[str, str]:
    """All entries by name."""
    makers = {
        'registry': registry_entries,
        'functional': functional_names,
        'losses': loss_results,
        'configs': config_entries,
    }
    entries = {}
    for part in parts or makers:
        entries.update(makers[part]())
    return entries


def compare(before: dict[str, str], after: dict[str, str]) -> int:
    """Print the differences; 1 if there is any but additions."""
    added = sorted(after.keys() - before.keys())
    removed = sorted(before.keys() - after.keys())
    changed = [key for key in sorted(before) if after.get(key, before[key]) != before[key]]
    for word, keys in (('added', added), ('removed', removed)):
        for key in keys:
            print(f'{word}: {key}')
    for key in changed:
        print(f'changed: {key}\n  - {before[key]}\n  + {after[key]}')
    print(
        f'{len(before)} entries before, {len(after)} after: {len(added)} '
        f'added, {len(removed)} removed, {len(changed)} changed'
    )
    return int(bool(removed or changed))


def main() -> int:
    """Print a snapshot, or its differences from an older one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--compare', metavar='OLD.json')
    parser.add_argument(
        '--part',
        action='append',
        choices=['registry', 'functional', 'losses', 'configs'],
        help='only this part; may be given more than once',
    )
    args = parser.parse_args()
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        entries = snapshot(args.part or [])
    if args.compare is None:
        json.dump(entries, sys.stdout, indent=1, sort_keys=True)
        print()
        return 0
    before = json.loads(Path(args.compare).read_text('utf-8'))
    if args.part:
        kinds = {key.split()[0] for key in entries}
        before = {k: v for k, v in before.items() if k.split()[0] in kinds}
    return compare(before, entries)


if __name__ == '__main__':
    sys.exit(main())
