"""The models of a retrieval report, and where their features are kept."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrank.errors import UserError
from research.common.model_entry import Entry, find_checkpoint, split_entry
from research.common.run_record import digest_run

_METRIC = 'mmrank.RetrievalMetric'


def parse_entries(words: Sequence[str]) -> list[Entry]:
    """Read ``[NAME=]FEATURES.npz`` and ``[NAME=]CONFIG.py,CHECKPOINT``.

    Args:
        words: From the command line.

    Returns:
        The models, in the same order.

    Raises:
        UserError: If a file does not exist, or two models have one name.
    """
    entries = [_parse(word) for word in words]
    names = [entry.file_name for entry in entries]
    twice = [e.name for e in entries if names.count(e.file_name) > 1]
    if twice:
        raise UserError(
            f'the names {sorted(set(twice))} map to one file name. Fix: name '
            'each model differently, NAME=PATH.'
        )
    return entries


def _parse(word: str) -> Entry:
    name, text, checkpoint = split_entry(word)
    path = Path(text)
    if not path.is_file() or path.suffix not in ('.py', '.npz'):
        raise UserError(
            f'{word!r}: {text!r} is not an existing .npz or .py file. Fix: pass NAME=FEATURES.npz '
            f'or NAME=CONFIG.py,CHECKPOINT (paths start at {Path.cwd()}).'
        )
    if (path.suffix == '.py') != (checkpoint is not None):
        raise UserError(
            f'{word!r}: a config requires a checkpoint, and features take '
            'none. Fix: pass NAME=CONFIG.py,CHECKPOINT or NAME=FEATURES.npz.'
        )
    return Entry(name or path.stem, path, find_checkpoint(word, checkpoint))


def plan_features(entry: Entry, config: dict, device: str, out_dir: str | os.PathLike) -> Path:
    """Return the file of a config's features.

    A changed config, override, checkpoint or kind of device has a file of
    its own.

    Args:
        entry: A config with its checkpoint.
        config: Its content, overrides merged.
        device: ``'cuda'``, ``'cpu'``, ...
        out_dir: Folder of the report.

    Returns:
        The file.
    """
    digest = digest_run(config, entry.checkpoint, device)
    name = f'{entry.file_name}-{digest[:8]}.npz'
    return Path(out_dir) / 'features' / name


def use_retrieval_metric(cfg: Any, out_file: str, name: str) -> list[str]:
    """Let the test of a config write features, and do nothing else.

    Args:
        cfg: The config. Its ``RetrievalMetric`` keeps its options; without
            one it gets the default one.
        out_file: The file to write.
        name: Name of the model for an error.

    Returns:
        Sentences on what of the metric the report leaves out.

    Raises:
        UserError: If the config has no test set.
    """
    if not cfg.get('test_dataloader') or cfg.get('test_cfg') is None:
        raise UserError(
            f'{name}: the config has no test_dataloader or no test_cfg. Fix: '
            'add both, or pass features.'
        )
    metrics = cfg.get('test_evaluator') or []
    metrics = [metrics] if isinstance(metrics, dict) else metrics
    own = [m for m in metrics if m.get('type') in (_METRIC, 'RetrievalMetric')]
    metric = own[0] if own else dict(type=_METRIC)
    metric['out_file'] = out_file
    cfg.test_evaluator = metric
    per_class = metric.pop('gallery_per_class', None)
    if per_class is None:
        return []
    return [
        f'{name}: gallery_per_class={per_class} is left out; in the report '
        'every image searches all others.'
    ]
