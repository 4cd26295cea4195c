"""Shards in WebDataset's form: tar files whose members share a key.

A sample is the members one behind the other whose names agree up to the first dot after the last
slash: ``000/17.jpg`` and ``000/17.txt`` are the members ``jpg`` and ``txt`` of the sample
``000/17``. Written by hand, by ``webdataset.ShardWriter``, img2dataset or ``tar --sort=name``.
webdataset's own reader says neither where a member lies nor that a shard is cut off.
"""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

from mmrank.datasets.captions.caption_files import clean_captions
from mmrank.datasets.shards.shard_index import (
    INDEX_FOLDER,
    ScannedShard,
    ShardIndex,
    ShardSample,
    write_index,
)
from mmrank.errors import UserError

#: Members that hold the image, by WebDataset's names.
IMAGE_MEMBERS = ('jpg', 'jpeg', 'png', 'webp', 'bmp', 'ppm', 'tif', 'tiff')
_NAME = re.compile(r'((?:.*/|)[^.]+)[.]([^/]*)')
_BLOCK, _CHUNK = 512, 1 << 20
#: Bytes to whose multiple an archive is filled up, and the bytes of the end of its last member.
_RECORD, _ENDING = 20 * _BLOCK, 32
#: Bytes of a caption: a member of a gigabyte is not read into memory.
_LONGEST = 1 << 24
_PACKED = ('.tar.gz', '.tgz', '.tar.bz2', '.tar.xz', '.tar.zst')


def captions_in(data: bytes, caption: str) -> list[str] | None:
    """Captions of a member, without blanks around and line breaks; None where there is none.

    ``caption='txt'``: the data are one caption. ``'json:FIELD'``: they are a JSON object, whose
    field is a caption or a list of them.
    """
    _, _, field = caption.partition(':')
    try:
        value = data.decode('utf-8')
        if field:
            value = json.loads(value)[field]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return clean_captions(value)


def split_name(name: str) -> tuple[str, str] | None:
    """Key and member of the name of a file; None where it belongs to no sample."""
    # Two parts decide; of more the expression would take the square of the time.
    cut = name.rfind('/', 0, max(name.rfind('/'), 0)) + 1
    found = _NAME.fullmatch(name, cut)
    return None if found is None else (name[:cut] + found[1], found[2])


def scan_tar(path: Path, caption: str = 'txt') -> Iterator[ShardSample]:
    """Yield the samples of a tar file that is not compressed. No image is read."""
    member = caption.partition(':')[0]
    with open_shard(path) as file:
        for key, members in _samples(path):
            images = [name for name in IMAGE_MEMBERS if name in members]
            captions = None
            if member in members:
                offset, size = members[member]
                file.seek(offset)
                captions = captions_in(file.read(min(size, _LONGEST)), caption)
            if len(images) != 1:
                some = ', '.join(IMAGE_MEMBERS[:4])
                fault = f'has {len(images)} images, and needs one of {some}'
            elif member not in members:
                fault = f'has no caption: no member {member}'
            elif size > _LONGEST:
                fault = f'has a caption of {size:,} bytes, more than {_LONGEST:,}'
            elif captions is None:
                fault = f'has no caption: {caption} is empty or no text'
            else:
                yield ShardSample(key, captions, (*members[images[0]], offset, size))
                continue
            raise UserError(
                f'shard {path}: sample {key!r:.200} {fault}. Fix: write the shard without it or '
                'with its missing part, or name the caption: --caption txt, --caption json:FIELD'
            )


def _samples(path: Path) -> Iterator[tuple[str, dict]]:
    """Key and members of each sample: their offset and size."""
    current, members, end, data = None, {}, 0, (0, 0)
    total = path.stat().st_size
    try:
        with tarfile.open(path, mode='r:') as tar:
            for info in tar:
                tar.members = []  # it would keep all, for look-ups
                end = tar.offset
                found = split_name(info.name)
                if not info.isreg() or found is None:
                    continue
                key, member = found[0], found[1].lower()
                if key.startswith('__') and key.endswith('__'):
                    continue
                if end > total:
                    break
                if key != current:
                    if members:
                        yield current, members
                    current, members = key, {}
                if member in members:
                    raise UserError(
                        f'shard {path} has the key {key!r:.200} twice: two members {member}. Fix: '
                        'write the shard again, with one key a sample'
                    )
                members[member] = data = info.offset_data, info.size
    except UserError:
        raise
    except Exception as error:  # damaged headers raise anything, a MemoryError among them
        raise UserError(
            f'shard {path} is damaged or no tar file: {type(error).__name__} {error}. Fix: fetch '
            'or write it again; a compressed one has to be unpacked (gunzip), as its samples are '
            'read from the middle'
        ) from error
    # The end of a tar file is marked by zeros. tarfile ends at a damaged header, too.
    if end + _BLOCK > total:
        raise UserError(
            f'shard {path} is cut off: it has {total:,} bytes, and its last member '
            f'{current!r:.200} ends at {end:,}. Fix: fetch or write it again'
        )
    with open_shard(path) as file:
        file.seek(end)
        for place, block in zip(range(end, total, _CHUNK), iter(lambda: file.read(_CHUNK), b'')):
            if block.strip(b'\0'):
                where = place + len(block) - len(block.lstrip(b'\0'))
                raise UserError(
                    f'shard {path} is damaged, or two archives in one: it ends at {end:,}, behind '
                    f'{current!r:.200}, and goes on at {where:,}. Fix: fetch or write it again; '
                    'archives that were joined by cat must each be a shard'
                )
        # A copy into a file of the full size, which was broken off.
        most = -(-(end + 2 * _BLOCK) // _RECORD) * _RECORD
        length = min(data[1], _ENDING)
        file.seek(sum(data) - length)
        if total > most or (length and not file.read(length).strip(b'\0')):
            raise UserError(
                f'shard {path} is cut off: from {current!r:.200} on, to the end at {total:,}, it '
                'holds zeros alone. Fix: fetch or write it again'
            )
    if members:
        yield current, members


def open_shard(path: Path):
    """Open a shard for reading."""
    try:
        return open(path, 'rb')
    except OSError as error:
        raise UserError(
            f'shard {path} is missing or cannot be opened: {error.strerror}. Fix: put it back; if '
            'it is gone for good, make the index again and train from the start'
        ) from error


def index_tars(
    folder: str | Path, caption: str = 'txt', index: str | Path | None = None
) -> ShardIndex:
    """Number the samples of a folder of ``*.tar``, in the order of their names, once.

    See :func:`captions_in` for ``caption``; ``index`` is the folder to write to, by default
    ``mmrank_index`` in ``folder``.
    """
    folder = Path(folder)
    paths = sorted(folder.glob('*.tar'))
    if not paths:
        other = [x.name for x in folder.glob('*') if x.name.endswith(_PACKED)]
        raise UserError(
            f'{folder} holds no shard *.tar'
            + (f', only compressed ones such as {other[0]}' if other else '')
            + '. Fix: name the folder of the shards; unpack compressed ones '
            '(gunzip), as their samples are read from the middle'
        )
    # The file is noted before it is read, so that a change meanwhile is found.
    shards = (
        (ScannedShard(path.name, scan_tar(path, caption)), note)
        for path, note in ((path, file_note(path)) for path in paths)
    )
    return write_index(index or folder / INDEX_FOLDER, dict(kind='tar', caption=caption), shards)


def file_note(path: Path) -> dict:
    """Size and time of a shard, by which a change is seen."""
    with open_shard(path):
        stat = path.stat()
    return dict(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns)


def check_tars(index: ShardIndex, folder: Path) -> None:
    """Compare a folder of shards with its index.

    A shard of another time, such as a copy, is scanned again: the names, places and captions of its
    samples must be the index's. Pixels are not compared.
    """
    known = {shard['name'] for shard in index.shards}
    new = sorted(x.name for x in folder.glob('*.tar') if x.name not in known)
    if new:
        raise UserError(
            f'{folder} holds {len(new)} shards that its index does not have, the first is '
            f'{new[0]}. Fix: move them away, or make the index again; a running training then '
            'cannot be resumed, as samples have other numbers'
        )
    for shard in index.shards:
        path = folder / shard['name']
        note = file_note(path)
        same = note['bytes'] == shard['bytes']
        if same and note['mtime_ns'] != shard['mtime_ns']:
            scanned = ScannedShard(shard['name'], scan_tar(path, index.source['caption']))
            same = scanned.digest == shard['digest']
        if not same:
            raise UserError(
                f'shard {path} has changed since its samples were numbered ({note["bytes"]:,} '
                f'bytes, then {shard["bytes"]:,}). Fix: put the old file back; or make the index '
                'again and train from the start'
            )
