"""Files of the shards beside a checkpoint, or in it.

``epoch_3.pth`` has ``epoch_3.pth.<token>.<rank>-of-<W>.shard`` beside it and names them. The token
is new each time: a file that is saved again under its name has other shards, and until it is
replaced it is whole with its own. A checkpoint that is a folder has ``<rank>-of-<W>.shard`` in it.
"""

import pickletools
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator
from glob import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrank.errors import UserError

from .sharding import Shard

#: Key of a checkpoint: names of its shards.
SHARD_FILES_KEY = 'sample_state_shards'
_NAME = re.compile(r'(?P<checkpoint>[^/\\\x00]+)\.[0-9a-f]{12}\.[0-9]+-of-[0-9]+\.shard')


_OWN_NAME = re.compile(
    r'(?:\.(?P<token>[0-9a-f]{12})\.|^)(?P<part>[0-9]+)-of-(?P<parts>[0-9]+)\.shard$'
)


def shard_names(checkpoint: str, token: str, parts: int) -> list[str]:
    """Names of the shards of a checkpoint file, by rank; the token is 12 hexadecimal digits."""
    return [f'{checkpoint}.{token}.{name}' for name in own_shard_names(parts)]


def own_shard_names(parts: int) -> list[str]:
    """Names of the shards in a folder, by rank."""
    return [f'{i}-of-{parts}.shard' for i in range(parts)]


def named_shards(path: str | Path) -> list[str]:
    """Names of the shards that a whole checkpoint needs beside it; its pickle is not run.

    A folder needs nothing beside it.
    """
    if Path(path).is_dir():
        return []
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith('/data.pkl'):
                content = archive.read(name)
                # Most checkpoints have none; the pickle may be long.
                if SHARD_FILES_KEY.encode() not in content:
                    return []
                found = {}  # in the order in which they stand
                for _, value, _ in pickletools.genops(content):
                    if isinstance(value, str) and _NAME.fullmatch(value):
                        found[value] = True
                return list(found)
    return []


def read_shards(checkpoint: str | Path, names: Collection[str]) -> Iterator[Any]:
    """Open the shards that a checkpoint names one by one, as data.

    Yields what :func:`mmrank.state.save_shard` gave; rows are read when they are used. Raises
    UserError if a shard is missing or cannot be read.
    """
    checkpoint = Path(checkpoint)
    is_folder = checkpoint.is_dir()
    found = sorted(_OWN_NAME.search(name).group('part', 'parts') for name in names)
    if found != sorted((str(i), str(len(names))) for i in range(len(names))):
        raise UserError(
            f'checkpoint {checkpoint} does not name each of its shards once: {list(names)}. Fix: '
            'copy it again, or pass another one'
        )
    for name in names:
        folder = checkpoint if is_folder else checkpoint.parent
        path = folder / Path(name).name
        try:
            yield _read_shard(path)
        # Damaged bytes raise anything.
        except Exception as error:
            what = (
                'is missing'
                if isinstance(error, FileNotFoundError)
                else f'cannot be read ({type(error).__name__}: {error})'
            )
            raise UserError(
                f'checkpoint {checkpoint} keeps its state per sample in {len(names)} files '
                f'{"in" if is_folder else "beside"} it, and {path.name} {what}. Fix: copy the '
                f'.shard files into {folder}, where all processes can read it; to start with fresh '
                'values load_state=False of the loss'
            ) from error


def _read_shard(path: Path) -> Any:
    """What is in a shard; a ValueError if it is damaged, or not the one that its name says."""
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f'record {damaged} has another checksum')
    content = torch.load(path, map_location='cpu', mmap=True, weights_only=True)
    token, part, parts = _OWN_NAME.search(path.name).groups()
    for saved in content.values():
        # Before there were tokens in it, a shard knew its part alone.
        if saved['shard'][1:] != [int(part), int(parts)] or saved.get('token', token) != token:
            raise ValueError('it is another part, or of another checkpoint')
    return content


def whole_tables(checkpoint: str | Path, names: Collection[str]) -> dict[str, Tensor]:
    """Put the shards that a checkpoint names together: whole tables by the key of one without."""
    tables: dict[str, Tensor] = {}
    parts: Counter[str] = Counter()
    for content in read_shards(checkpoint, names):
        for module, saved in content.items():
            shard = Shard(*saved['shard'])
            for name, rows in saved['rows'].items():
                key = f'{module}.{name}' if module else name
                parts[key] += 1
                if key not in tables:
                    tables[key] = rows.new_empty(shard.size, *rows.shape[1:])
                tables[key][shard.place] = rows
    if lacking := [key for key, number in parts.items() if number != len(names)]:
        raise UserError(
            f'checkpoint {checkpoint} has {parts[lacking[0]]} of {len(names)} parts of '
            f'{lacking[0]}. Fix: copy it again with its shards, or pass another one'
        )
    return tables


def remove_shards(checkpoint: str | Path, keep: Collection[str] = ()) -> None:
    """Remove the shards of a checkpoint but some, shards of earlier tokens included.

    The checkpoint need not exist.
    """
    checkpoint = Path(checkpoint)
    for path in checkpoint.parent.glob(f'{escape(checkpoint.name)}.*.shard'):
        match = _NAME.fullmatch(path.name)
        if match is not None and match['checkpoint'] == checkpoint.name and path.name not in keep:
            path.unlink(missing_ok=True)


def remove_lost_shards(folder: str | Path) -> None:
    """Remove the shards that no checkpoint of a folder names: a killed training leaves them."""
    folder = Path(folder)
    kept = {}
    for path in folder.glob('*.shard'):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        name = match['checkpoint']
        if name not in kept:
            kept[name] = _named_or_none(folder / name)
        if kept[name] is not None and path.name not in kept[name]:
            path.unlink(missing_ok=True)


def _named_or_none(checkpoint: Path) -> list[str] | None:
    """What a checkpoint names; None where it cannot be read."""
    if not checkpoint.exists():
        return []
    try:
        return named_shards(checkpoint)
    # Damaged bytes raise anything.
    except Exception:
        return None
