"""Features of a model on its test set: read, or made by its config."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mmrank.apis.entry_point import add_checkpoint_options, add_config_option, build_runner, load
from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures, load_features
from research.common.model_entry import Entry
from research.retrieval.entries import parse_entries, plan_features, use_retrieval_metric
from research.retrieval.result import check_same_test_set


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the models of a command line and how their configs are run."""
    parser.add_argument(
        'models',
        nargs='+',
        metavar='[NAME=]PATH[,CHECKPOINT]',
        help="config with checkpoint, or .npz file of features; the name defaults to the path's",
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        default=[],
        metavar='KEY=VALUE',
        help='overrides of all configs that are run',
    )
    add_checkpoint_options(parser)


def features_by_name(
    args: argparse.Namespace,
    out_dir: str | os.PathLike,
    say: Callable[[str], None] = print,
    stored: bool = False,
) -> dict[str, RetrievalFeatures]:
    """Read or make the features of every model of a command line.

    Args:
        args: What the parser of :func:`add_model_options` returned.
        out_dir: Folder that keeps the features and the logs of tests.
        say: Called with lines for the user.
        stored: Leave the embeddings in their files.

    Raises:
        UserError: If a config cannot be tested, or the models have several test sets.
    """
    models = {
        entry.name: features_of(
            entry,
            out_dir,
            args.cfg_options,
            trust_checkpoint=args.trust_checkpoint,
            allow_partial=args.allow_partial,
            stored=stored,
            say=say,
        )
        for entry in parse_entries(args.models)
    }
    check_same_test_set(models)
    return models


def features_of(
    entry: Entry,
    out_dir: str | os.PathLike,
    cfg_options: Sequence[str] = (),
    *,
    trust_checkpoint: bool = False,
    allow_partial: Sequence[str] = (),
    stored: bool = False,
    say: Callable[[str], None] = print,
) -> RetrievalFeatures:
    """Read a model's features, or test its config, once.

    Args:
        entry: See :func:`research.retrieval.entries.parse_entries`.
        out_dir: Folder that keeps the features and the logs of tests.
        cfg_options: ``key=value`` overrides of the config.
        trust_checkpoint: Let the checkpoint run code as it is read.
        allow_partial: Patterns of keys in which a checkpoint may differ.
        stored: Leave the embeddings in their file.
        say: Called with lines for the user.

    Raises:
        UserError: If the config cannot be tested.
    """
    if not entry.is_config:
        return load_features(entry.path, stored)
    from mmengine.device import get_device

    parser = argparse.ArgumentParser()
    add_config_option(parser)
    words = ['--cfg-options', *cfg_options] if cfg_options else []
    options = parser.parse_args(words).cfg_options
    try:
        cfg = load(
            argparse.Namespace(
                config=str(entry.path),
                cfg_options=options,
                launcher='none',
                work_dir=str(Path(out_dir) / 'runs' / entry.file_name),
                local_rank=0,
                trust_checkpoint=trust_checkpoint,
            )
        )
    except UserError as error:
        raise UserError(f'{entry.name}: {error}') from error
    content = cfg.to_dict()
    if allow_partial:
        content['allow_partial'] = list(allow_partial)
    path = plan_features(entry, content, get_device(), out_dir)
    if path.is_file():
        say(f'{entry.name}: tested before, features in {path}')
        return load_features(path, stored)
    say(f'{entry.name}: testing, log in {cfg.work_dir}')
    for note in use_retrieval_metric(cfg, str(path), entry.name):
        say(note)
    cfg.load_from = str(entry.checkpoint)
    # Two configs of one name within a second are one to mmengine.
    cfg.experiment_name = path.stem
    build_runner(cfg, allow_partial=allow_partial).test()
    return load_features(path, stored)
