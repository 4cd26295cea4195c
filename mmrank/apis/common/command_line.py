"""Shared by command lines: options with defaults, and the models of a table or report."""

import argparse
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrank.errors import UserError
from mmrank.files import check_output


def tool_parser(doc: str | None, **options: Any) -> argparse.ArgumentParser:
    """A parser with an option for each keyword: its default, or (default, help)."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in options.items():
        default, text = value if isinstance(value, tuple) else (value, '')
        rest: dict[str, Any] = dict(default=default, help=text)
        if default is False:
            rest['action'] = 'store_true'
        elif default is not None:
            rest['help'] = f'{text} (default: %(default)s)'.lstrip()
            rest['type'] = type(default)
        if name == 'device':
            rest['choices'] = ['cpu', 'cuda']
        if isinstance(default, list):
            rest.update(nargs='+', type=type(default[0]))
        parser.add_argument(f'--{name.replace("_", "-")}', **rest)
    return parser


def parse_at_least(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, /, **least: float
) -> argparse.Namespace:
    """Parse a command line; refuses numbers, by their names, below their least values."""
    args = parser.parse_args(words)
    for name, value in least.items():
        found = getattr(args, name, None)
        if found is not None and not found >= value:
            parser.error(f'--{name.replace("_", "-")} must be at least {value}, got {found}')
    return args


def check_outputs(args: argparse.Namespace, *names: str) -> None:
    """Refuse output files, by their names in ``args``, that are inputs, or cannot be written."""
    inputs = []
    for name, value in vars(args).items():
        if name not in names:
            words = value if isinstance(value, list | tuple) else [value]
            # Also FILE of NAME=FILE, and of CONFIG,CHECKPOINT.
            inputs += [x for word in words for x in [str(word), *re.split('[=,]', str(word))] if x]
    for name in names:
        if getattr(args, name) is not None:
            check_output(getattr(args, name), *inputs)


@dataclass(frozen=True)
class Entry:
    """One model: its name, its config or what a run of it has left, and a config's checkpoint."""

    name: str
    path: Path
    checkpoint: Path | None = None

    @property
    def is_config(self) -> bool:
        """Whether the model has to be run."""
        return self.path.suffix == '.py'

    @property
    def file_name(self) -> str:
        """The name, fit to be part of a file name."""
        return safe_name(self.name)


def safe_name(name: str) -> str:
    """Replace what a file name should not hold by ``_``."""
    return ''.join(c if c.isalnum() or c in '.+-' else '_' for c in name)


def split_entry(word: str) -> tuple[str, str, str | None]:
    """Take ``[NAME=]PATH[,CHECKPOINT]`` apart; without a name it is ``''``."""
    name, equals, text = word.partition('=')
    # A path may have an equals sign of its own.
    if not equals or Path(word.partition(',')[0]).exists():
        name = ''
        text = word
    path, comma, checkpoint = text.partition(',')
    return name, path, checkpoint if comma else None


def find_checkpoint(word: str, checkpoint: str | None) -> Path | None:
    """Return a checkpoint that is there."""
    if checkpoint is None:
        return None
    if not Path(checkpoint).is_file():
        raise UserError(
            f'{word!r}: checkpoint {checkpoint!r} does not exist. Fix: pass the .pth file of a '
            'training.'
        )
    return Path(checkpoint)


def digest_run(config: Mapping | list, checkpoint: str | os.PathLike | None, device: str) -> str:
    """Sixteen hexadecimal digits of config, content of the checkpoint and kind of device."""
    content = hashlib.sha256(json.dumps([config, device], sort_keys=True, default=str).encode())
    if checkpoint is not None:
        with open(checkpoint, 'rb') as file:
            while block := file.read(2**20):
                content.update(block)
    return content.hexdigest()[:16]
