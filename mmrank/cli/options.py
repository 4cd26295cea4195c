"""Options of the command line that commands share, and output files among them."""

import argparse
import os
from collections.abc import Callable, Sequence
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


def split_name(word: str) -> tuple[str, str]:
    """Name and path of ``[NAME=]PATH``, which both may hold an equals sign; '' without a name."""
    parts = word.split('=')
    for count in range(len(parts)):
        path = '='.join(parts[count:])
        # Also of CONFIG,CHECKPOINT.
        if os.path.exists(path) or os.path.exists(path.partition(',')[0]):
            return '='.join(parts[:count]), path
    return ('', word) if len(parts) == 1 else (parts[0], '='.join(parts[1:]))


def named_paths(words: Sequence[str], default: Callable[[str], str] = str) -> dict[str, str]:
    """Paths by their names, by default by themselves; no two may have one name."""
    found: dict[str, str] = {}
    for name, path in map(split_name, words):
        name = name or default(path)
        if name in found:
            what = f'{found[name]} and {path} are both named {name!r}'
            raise UserError(what, 'NAME=PATH with another NAME for each')
        found[name] = path
    return found


def check_outputs(args: argparse.Namespace, *names: str) -> None:
    """Refuse output files, by their names in ``args``, that are inputs, or cannot be written."""
    inputs = []
    for name, value in vars(args).items():
        if name not in names:
            words = value if isinstance(value, list | tuple) else [value]
            paths = [split_name(str(word))[1] for word in words]
            # Also of CONFIG,CHECKPOINT.
            inputs += [x for path in paths for x in [path, *path.split(',')] if x]
    for name in names:
        if getattr(args, name) is not None:
            check_output(getattr(args, name), *inputs)
