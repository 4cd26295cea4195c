"""What is wrong with a config file before mmengine reads it."""

import ast
import os
from pathlib import Path

from mmrank.errors import UserError

#: How files begin that torch.save writes: a zip archive, or a pickle.
_CHECKPOINTS = (b'PK\x03\x04', b'\x80')


def check_config_file(path: str | Path, heirs: tuple[Path, ...] = ()) -> None:
    """Refuse, by a UserError, a file that is not text, or inherits from itself.

    mmengine takes such a circle for a long chain, and ends after seconds with a ``RecursionError``.

    Args:
        path: The config file.
        heirs: The files that inherit from it, one from the other.
    """
    path = Path(path)
    if path.resolve() in heirs:
        names = ' -> '.join(heir.name for heir in (*heirs, path.resolve()))
        raise UserError(
            f'config file {path} inherits from itself: {names}.\n  Fix: remove the file from a '
            '_base_ of these'
        )
    try:
        text = path.read_text('utf-8')
    except UnicodeDecodeError as error:
        data = path.read_bytes()
        if data.startswith(_CHECKPOINTS) or path.suffix in ('.pth', '.pt'):
            raise UserError(
                f'{path} is a checkpoint, and a config file is wanted.\n  Fix: the arguments in '
                'the order CONFIG CHECKPOINT'
            ) from error
        fault = 'is not text' if b'\0' in data else f'is not in UTF-8, at byte {error.start}'
        raise UserError(
            f'config file {path} {fault}.\n  Fix: name the .py file of a config, saved as UTF-8'
        ) from error
    for base in _bases(text) if path.suffix == '.py' else ():
        # Others are of a package, or missing, of which mmengine tells.
        if os.path.isfile(path.parent / base):
            check_config_file(path.parent / base, (*heirs, path.resolve()))


def _bases(text: str) -> list[str]:
    """Values of ``_base_`` in a config."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return []  # mmengine says where
    found = []
    for line in body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == '_base_':
            found += [x.value for x in ast.walk(line.value) if isinstance(x, ast.Constant)]
    return [base for base in found if isinstance(base, str)]
