"""Which sample of a data set in shards has which index.

A shard holds its samples one after the other. The index numbers them: the first shard's from 0, and
so on. It is made once, stored, and read by every training, so that a sample has the same number in
all of them. (webdataset and ``datasets`` iterate over shards without numbers; wids, which has some,
is not part of webdataset 1.)
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmrank.errors import UserError
from mmrank.files import remove_path, temporary_folder

#: Where the index of a folder of shards is, unless told otherwise.
INDEX_FOLDER = 'mmrank_index'
_FORMAT = 1
_FILES = {f'{name}.npy' for name in ('keys', 'first_texts', 'text_ids', 'places')} | {'index.json'}
#: Bytes of a member: where it begins in the shard, and how many.
PLACE = np.dtype([(name, np.int64) for name in ('image', 'image_size', 'caption', 'caption_size')])


class ShardSample(NamedTuple):
    """One sample, as it is found in a shard, with its name there and one caption at least."""

    key: str
    captions: list[str]
    #: The numbers of ``PLACE``; None where a shard cannot be read from the middle.
    place: tuple[int, int, int, int] | None = None


class ScannedShard:
    """The samples of a shard, collected in their order."""

    def __init__(self, name: str, samples: Iterable[ShardSample]) -> None:
        self.name = name
        self.places: list[tuple] = []
        self.counts: list[int] = []
        keys: list[int] = []
        texts: list[int] = []
        known: set[str] = set()
        total = hashlib.blake2b(digest_size=16)
        for key, captions, place in samples:
            if key in known:
                raise UserError(
                    f'shard {name} has the key {key!r:.200} twice, so that two samples would have '
                    'one name. Fix: write the shard again, with one key a sample and its members '
                    'one behind the other'
                )
            known.add(key)
            if place is not None:
                self.places.append(place)
            keys.append(digest_of(key))
            self.counts.append(len(captions))
            texts += map(digest_of, captions)
            total.update(json.dumps([key, captions, place]).encode() + b'\n')
        self.keys, self.texts = np.array(keys, np.uint64), np.array(texts, np.uint64)
        self.digest = total.hexdigest()


def digest_of(text: str) -> int:
    """64 bits that stand for a text, as an integer in [0, 2^64)."""
    encoded = text.encode('utf-8', 'surrogateescape')
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), 'big')


@dataclass(eq=False)
class ShardIndex:
    """Numbers of the samples of all shards; see :func:`write_index`.

    The arrays are mapped from the disk: the processes of a machine share them, and what is not used
    is not read.

    Sample i has the captions ``first_texts[i]`` to ``first_texts[i + 1] - 1``; equal captions, by a
    digest of 64 bits, have one number in ``text_ids``.
    """

    folder: Path
    source: dict  # what the shards are and how a sample is read from them
    shards: list[dict]  # name, digest and number of samples of each, and what the source adds
    keys: np.ndarray  # (N,) uint64 digests
    first_texts: np.ndarray  # (N + 1,) int64
    text_ids: np.ndarray  # (T,) int64
    places: np.ndarray | None = None  # (N,) of PLACE

    def __post_init__(self) -> None:
        sizes = [shard['samples'] for shard in self.shards]
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple:
        # A mapped array would be copied whole into each spawned process.
        return read_index, (self.folder,)

    @property
    def digest(self) -> str:
        """Tells indices apart: equal where each sample has the same number."""
        parts = [shard['digest'] for shard in self.shards]
        return hashlib.blake2b(' '.join(parts).encode(), digest_size=16).hexdigest()

    def locate(self, sample: int) -> tuple[int, int]:
        """Shard of a sample, and its row there."""
        shard = int(np.searchsorted(self.starts, sample, side='right')) - 1
        return shard, sample - int(self.starts[shard])


def write_index(
    folder: str | os.PathLike, source: dict, shards: Iterable[tuple[ScannedShard, dict]]
) -> ShardIndex:
    """Number the samples of shards, each with what to note of it, and store it whole or not at all.

    An index that is in ``folder`` is replaced, unless none of its shards is one of these.
    ``source`` are plain containers, see
    :class:`ShardIndex`.
    """
    folder = Path(folder).resolve()
    _check_replaceable(folder)
    scanned, notes = [], []
    for shard, note in shards:
        scanned.append(shard)
        notes.append(dict(note, name=shard.name, digest=shard.digest, samples=len(shard.keys)))
    counts = [count for shard in scanned for count in shard.counts]
    if not counts:
        raise UserError(
            f'there is no sample in {len(notes)} shards. Fix: check the '
            'folder or the files that are named'
        )
    arrays = dict(
        keys=np.concatenate([shard.keys for shard in scanned]),
        first_texts=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        text_ids=_number(np.concatenate([shard.texts for shard in scanned])),
    )
    if places := [place for shard in scanned for place in shard.places]:
        arrays['places'] = np.array(places, dtype=PLACE)
    with temporary_folder(folder) as temp:
        new = temp / 'new'
        new.mkdir()
        for name, array in arrays.items():
            np.save(new / f'{name}.npy', array)
        text = json.dumps(dict(format=_FORMAT, source=source, shards=notes), indent=1)
        (new / 'index.json').write_text(text, encoding='utf-8')
        _check_replaceable(folder)
        _refuse_other_index(folder, {shard.digest for shard in scanned})
        for name in _FILES:
            remove_path(folder / name)
        if folder.exists():
            folder.rmdir()
        new.rename(folder)
    return read_index(folder)


def _check_replaceable(folder: Path) -> None:
    """Refuse a folder in which there is anything that :func:`write_index` did not write."""
    if not folder.exists():
        return
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [folder.name]
    foreign = [name for name in names if name not in _FILES]
    if foreign or (names and 'index.json' not in names):
        raise UserError(
            f'{folder} is not an index of samples: it holds {(foreign or names)[0]!r}, which would '
            'be lost. Fix: name a folder that does not exist, or that of an index'
        )


def _refuse_other_index(folder: Path, digests: set[str]) -> None:
    """Refuse to replace an index that has none of the shards with these digests."""
    try:
        old = read_index(folder).shards
    except UserError:  # none, or a damaged one
        return
    if digests.isdisjoint(shard['digest'] for shard in old):
        raise UserError(
            f'{folder} is the index of other shards, such as {old[0]["name"]}, and trainings on '
            'them need it. Fix: another --out, or remove the index if its shards are gone'
        )


def _number(digests: np.ndarray) -> np.ndarray:
    """Numbers from 0 in the order of first mention."""
    _, first, which = np.unique(digests, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[which.reshape(-1)]


def read_index(folder: str | os.PathLike) -> ShardIndex:
    """Read what :func:`write_index` has stored."""
    folder = Path(folder)
    again = 'python tools/dataset_converters/image_text_shards.py index SHARDS (or: stream)'
    if not (folder / 'index.json').is_file():
        raise UserError(f'{folder} holds no index of the samples. Fix: make it once, with {again}')
    try:
        document = json.loads((folder / 'index.json').read_text(encoding='utf-8'))
        if document['format'] != _FORMAT:
            raise ValueError(f'it has format {document["format"]}')
        arrays = {
            name: np.load(folder / f'{name}.npy', mmap_mode='r')
            for name in ('keys', 'first_texts', 'text_ids', 'places')
            if name != 'places' or (folder / 'places.npy').is_file()
        }
        index = ShardIndex(folder, document['source'], document['shards'], **arrays)
        sizes = {len(index.keys), len(index.first_texts) - 1, int(index.starts[-1])}
        sizes.add(len(index if index.places is None else index.places))
        if len(sizes) > 1 or index.first_texts[-1] != len(index.text_ids):
            raise ValueError('its parts have different lengths')
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'the index {folder} is damaged or of another version of mmrank: '
            f'{error}. Fix: make it again, with {again}'
        ) from error
    return index
