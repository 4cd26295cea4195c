"""Features of a model on its test set: read, or made by its config."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import (
    RetrievalFeatures,
    load_features,
)
from mmrank.studies.common.model_entry import Entry
from mmrank.studies.retrieval.entries import (
    plan_features,
    use_retrieval_metric,
)


def features_of(
    entry: Entry,
    out_dir: str | os.PathLike,
    cfg_options: Sequence[str] = (),
    *,
    trust_checkpoint: bool = False,
    allow_partial: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> RetrievalFeatures:
    """Read a model's features, or test its config, once.

    Args:
        entry: See :func:`mmrank.studies.retrieval.entries.parse_entries`.
        out_dir: Folder that keeps the features and the logs of tests.
        cfg_options: ``key=value`` overrides of the config.
        trust_checkpoint: Let the checkpoint run code as it is read.
        allow_partial: Patterns of keys in which a checkpoint may differ.
        say: Called with lines for the user.

    Raises:
        UserError: If the config cannot be tested.
    """
    if not entry.is_config:
        return load_features(entry.path)
    from mmengine.device import get_device

    from mmrank.apis.entry_point import add_config_option, build_runner, load

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
        return load_features(path)
    say(f'{entry.name}: testing, log in {cfg.work_dir}')
    for note in use_retrieval_metric(cfg, str(path), entry.name):
        say(note)
    cfg.load_from = str(entry.checkpoint)
    # Two configs of one name within a second are one to mmengine.
    cfg.experiment_name = path.stem
    build_runner(cfg, allow_partial=allow_partial).test()
    return load_features(path)
