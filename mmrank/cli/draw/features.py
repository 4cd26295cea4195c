"""Features of a model on its test set: read, or made by its config."""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from mmrank.cli.config_options import add_checkpoint_options, add_config_option
from mmrank.cli.options import split_name
from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures, load_features
from mmrank.files import safe_name
from mmrank.pictures.retrieval_report import check_same_test_set
from mmrank.runners.build import build_runner
from mmrank.runners.config import load
from mmrank.runners.identity import digest_of

_METRIC = 'mmrank.RetrievalMetric'
#: Hooks that measure more after a test.
_AFTER_TEST = ('mmrank.LinearEvaluationHook', 'mmrank.FurtherTestsHook')


class _Entry(NamedTuple):
    """One model: its name, a file of features, or a config with its checkpoint."""

    name: str
    path: Path
    checkpoint: Path | None

    @property
    def file_name(self) -> str:
        return safe_name(self.name)


def _parse(word: str) -> _Entry:
    name, text = split_name(word)
    text, comma, checkpoint = text.partition(',')
    path = Path(text)
    if not path.is_file() or path.suffix not in ('.py', '.npz'):
        what = f'{word!r}: {text!r} is not an existing .npz or .py file'
        fix = f'pass NAME=FEATURES.npz or NAME=CONFIG.py,CHECKPOINT (paths start at {Path.cwd()}).'
        raise UserError(what, fix)
    if (path.suffix == '.py') != bool(comma):
        what = f'{word!r}: a config requires a checkpoint, and features take none'
        raise UserError(what, 'pass NAME=CONFIG.py,CHECKPOINT or NAME=FEATURES.npz')
    if comma and not Path(checkpoint).is_file():
        what = f'{word!r}: checkpoint {checkpoint!r} does not exist'
        raise UserError(what, 'pass the .pth file of a training')
    return _Entry(name or path.stem, path, Path(checkpoint) if comma else None)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the models of a command line and how their configs are run."""
    parser.add_argument(
        'models',
        nargs='+',
        metavar='[NAME=]PATH[,CHECKPOINT]',
        help="config with checkpoint, or .npz file of features; the name defaults to the path's",
    )
    parser.add_argument(
        '--split',
        choices=['test', 'val'],
        default='test',
        help='data that configs are tested on (default: test)',
    )
    add_config_option(parser)
    add_checkpoint_options(parser)


def features_by_name(
    args: argparse.Namespace, out_dir: str | os.PathLike
) -> dict[str, RetrievalFeatures]:
    """Read or make the features of every model of a command line."""
    entries = [_parse(word) for word in args.models]
    if (args.split == 'val' or args.cfg_options) and not any(x.checkpoint for x in entries):
        what = '--split and --cfg-options are of configs, and features were made by another command'
        raise UserError(what, 'NAME=CONFIG.py,CHECKPOINT')
    names = [entry.file_name for entry in entries]
    twice = [e.name for e in entries if names.count(e.file_name) > 1]
    if twice:
        what = f'the names {sorted(set(twice))} map to one file name'
        raise UserError(what, 'name each model differently, NAME=PATH.')
    models = {x.name: load_features(_features_of(x, args, out_dir)) for x in entries}
    check_same_test_set(models)
    return models


def _features_of(entry: _Entry, args: argparse.Namespace, out_dir: str | os.PathLike) -> Path:
    """The file of a model's features; its config is tested, once."""
    if entry.checkpoint is None:
        return entry.path
    from mmengine.device import get_device

    work_dir = str(Path(out_dir) / 'runs' / entry.file_name)
    try:
        cfg = load(str(entry.path), args.cfg_options, work_dir, trust=args.trust_checkpoint)
    except UserError as error:
        raise UserError(f'{entry.name}: {error}') from error
    if args.split == 'val':
        cfg.test_dataloader = cfg.get('val_dataloader')
        cfg.test_evaluator = cfg.get('val_evaluator')
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None  # it is tested alone
    if not cfg.get('test_dataloader') or cfg.get('test_cfg') is None:
        what = f'{entry.name}: the config has no {args.split}_dataloader or no test_cfg'
        raise UserError(what, 'add both, or pass features.')
    cfg.load_from = str(entry.checkpoint)
    # Another config, override, checkpoint, file of the data or kind of device has its own file.
    digest = digest_of(cfg.to_dict(), get_device(), *args.allow_partial)
    path = Path(out_dir) / 'features' / f'{entry.file_name}-{digest}.npz'
    if path.is_file():
        print(f'{entry.name}: tested before, features in {path}')
        return path
    print(f'{entry.name}: testing, log in {cfg.work_dir}')
    # The test writes features, and does nothing else.
    metrics = cfg.get('test_evaluator') or []
    metrics = [metrics] if isinstance(metrics, dict) else metrics
    own = [m for m in metrics if m.get('type') in (_METRIC, 'RetrievalMetric')]
    cfg.test_evaluator = {**(own[0] if own else dict(type=_METRIC)), 'out_file': str(path)}
    cfg.custom_hooks = [x for x in cfg.get('custom_hooks') or [] if x['type'] not in _AFTER_TEST]
    # Two configs of one name within a second are one to mmengine.
    cfg.experiment_name = path.stem
    build_runner(cfg, allow_partial=args.allow_partial).test()
    return path
