"""Shards that are not on the disk: Hugging Face ``datasets``, streamed."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mmrank.datasets.captions.caption_files import clean_captions
from mmrank.datasets.shards.shard_index import ScannedShard, ShardIndex, ShardSample, write_index
from mmrank.errors import UserError
from mmrank.imports import required_package

#: Rows that are fetched at a time.
_BATCH = 64
#: A shard is read from a multiple of this, so that rows asked for in a shuffled order shortly
#: behind it do not open it again.
_ALIGN = 1024
#: Shards that a process reads side by side.
MOST_OPEN = 32


def open_stream(load: Mapping[str, Any]) -> Any:
    """Open a data set of Hugging Face without fetching its samples.

    ``load`` are arguments of ``datasets.load_dataset``: ``path``, ``data_files``, ``name``,
    ``split``, ``revision``. Returns a ``datasets.IterableDataset`` that decodes no images.
    """
    with required_package('datasets', 'mmrank.StreamedCaptions', "pip install 'mmrank[shards]'"):
        import datasets
    try:
        stream = datasets.load_dataset(**load, streaming=True)
    # Of each loader its own, and of the network.
    except Exception as error:
        raise UserError(
            f'datasets.load_dataset({dict(load)}, streaming=True) fails: {type(error).__name__}: '
            f'{error}. Fix: correct the arguments; for your own files path is webdataset, parquet '
            'or json, and data_files lists them'
        ) from error
    if not isinstance(stream, datasets.IterableDataset):
        raise UserError(
            f'{dict(load)} has the splits {sorted(stream)}. Fix: name one: '
            f'split={next(iter(stream))!r}'
        )
    return stream if stream.features is None else stream.decode(False)


class StreamColumns:
    """Reads samples out of the rows of a stream.

    The column ``image`` holds bytes, or Hugging Face's ``Image``; ``caption`` one or a list, or is
    ``COLUMN:FIELD`` for a column of objects. ``key`` None: the row and its captions are the key.
    """

    def __init__(self, image: str, caption: str, key: str | None) -> None:
        self.image, self.key = image, key
        self.caption, _, self.field = caption.partition(':')
        self.names = [x for x in (image, self.caption, key) if x is not None]

    def check(self, stream: Any) -> None:
        """Raise a ``UserError`` if the stream lacks a column."""
        known = stream.column_names
        missing = [x for x in self.names if known and x not in known]
        if missing:
            raise UserError(
                f'the stream has no column {missing[0]!r}; it has {sorted(known)}. Fix: name the '
                'columns: --image, --caption, --key'
            )

    def captions(self, row: Mapping) -> list[str] | None:
        """Captions of a row; None where there is none."""
        value = row.get(self.caption)
        if self.field:
            value = value.get(self.field) if isinstance(value, dict) else None
        return clean_captions(value)

    def image_bytes(self, row: Mapping) -> bytes | None:
        """Bytes of the image of a row; None where there are none."""
        value = row.get(self.image)
        if isinstance(value, dict):
            value = value.get('bytes')
        return bytes(value) if isinstance(value, bytes | bytearray) else None

    def key_of(self, row: Mapping, number: int, captions: list[str]) -> str:
        """Key of a row."""
        if self.key is None:
            return '\n'.join([str(number), *captions])
        return str(row.get(self.key))


def rows_of(stream: Any, shard: int, columns: list[str]) -> Iterator[dict]:
    """Yield the rows of a shard in their order, with the named columns."""
    part = stream.shard(num_shards=stream.num_shards, index=shard)
    part = part.select_columns(columns)
    # Not iter(part): in a data loading worker that shares the shards of the stream out among the
    # workers, and this is one shard.
    for batch in part.iter(batch_size=_BATCH):
        for values in zip(*(batch[name] for name in columns)):
            yield dict(zip(columns, values))


def index_stream(
    load: Mapping[str, Any], index: str | Path, image: str, caption: str, key: str | None = None
) -> ShardIndex:
    """Number the samples of a stream, once: each shard is read through.

    See :func:`open_stream` for ``load`` and :class:`StreamColumns` for ``image``, ``caption`` and
    ``key``; ``index`` is the folder to write to.
    """
    stream = open_stream(load)
    columns = StreamColumns(image, caption, key)
    columns.check(stream)
    wanted = [x for x in columns.names if x != image]

    def scan(shard: int) -> Iterator[ShardSample]:
        for number, row in enumerate(rows_of(stream, shard, wanted)):
            captions = columns.captions(row)
            if captions is None:
                raise UserError(
                    f'row {number} of shard {shard} has no caption in {caption!r}. Fix: remove the '
                    'row, or name the column: --caption COLUMN, --caption COLUMN:FIELD'
                )
            yield ShardSample(columns.key_of(row, number, captions), captions)

    shards = ((ScannedShard(str(i), scan(i)), {}) for i in range(stream.num_shards))
    source = dict(kind='stream', load=dict(load), image=image, caption=caption, key=key)
    return write_index(index, source, shards)


class ShardReaders:
    """Gives rows of shards that can only be read from front to back.

    What is read on the way to a row is kept until it is asked for. A row that was passed and is not
    kept opens its shard again.

    ``most_kept`` rows are kept at most; the oldest go first.
    """

    def __init__(self, stream: Any, columns: list[str], most_kept: int) -> None:
        self.stream, self.columns = stream, columns
        self.most_kept = most_kept
        #: Rows asked for, and rows that went by for them.
        self.num_taken = self.num_read = 0
        self._open: OrderedDict[int, tuple[Iterator, int]] = OrderedDict()
        self._kept: OrderedDict[tuple[int, int], dict] = OrderedDict()

    def take(self, shard: int, row: int) -> dict | None:
        """A row of a shard, by their numbers; None where the shard has fewer."""
        self.num_taken += 1
        found = self._kept.pop((shard, row), None)
        if found is not None:
            return found
        rows, position = self._open.pop(shard, (None, row + 1))
        if position > row:
            position = row - row % _ALIGN
            rows = rows_of(self.stream, shard, self.columns)
            rows = islice(rows, position, None)
            self.num_read += position
        while position <= row:
            found = next(rows, None)
            if found is None:
                return None
            if position < row:
                self._kept[shard, position] = found
            position += 1
            self.num_read += 1
        self._open[shard] = rows, position
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        while len(self._kept) > self.most_kept:
            self._kept.popitem(last=False)
        return found
