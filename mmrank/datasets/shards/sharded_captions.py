"""Images with captions in shards, on the disk or streamed. Imports mmpretrain."""

import os
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mmengine.logging import MMLogger
from mmpretrain.datasets import BaseDataset

from mmrank.checks import check_at_least, one_of
from mmrank.datasets.captions.caption_dataset import UNITS
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.shards.shard_index import INDEX_FOLDER, ShardIndex, digest_of, read_index
from mmrank.datasets.shards.stream import MOST_OPEN, ShardReaders, StreamColumns, open_stream
from mmrank.datasets.shards.tar_shard import captions_in, check_tars, open_shard
from mmrank.errors import UserError

#: Files that a process keeps open.
_MOST_FILES = 128


class ReadSample(NamedTuple):
    """Bytes of the image file of a sample, and as many captions as the index knows."""

    image: bytes
    captions: list[str]


class IndexedCaptions(OneSizeBatches, BaseDataset):
    """Base of data sets of images with captions in shards.

    Items are as in :class:`~mmrank.datasets.captions.caption_dataset.\
CaptionDataset`, with the bytes of the image file in ``img_bytes``: let the pipeline begin with
    ``dict(type='mmrank.LoadImageFromBytes')``. The index of the shards gives each the same
    ``sample_idx``, ``image_id`` and ``text_id`` in every training; losses keep state by them.

    Args:
        index: Folder with the index.
        unit: What an item is, ``pair`` or ``image``; see there.
        pipeline: Transforms.
        **kwargs: ``test_mode``, ``metainfo`` and ``data_root``, where the shards are: see
            mmengine's ``BaseDataset``.

    Raises:
        UserError: If there is no index, or it is of other shards.
        ValueError: If ``unit`` is unknown.
    """

    #: What ``kind`` of index the data set reads.
    KIND = ''

    def __init__(
        self,
        index: str,
        unit: str | None = None,
        pipeline: Sequence = (),
        test_mode: bool = False,
        **kwargs,
    ) -> None:
        self.unit = unit or ('image' if test_mode else 'pair')
        one_of('unit', self.unit, UNITS)
        self.index: ShardIndex = read_index(index)
        kind = self.index.source.get('kind')
        if kind != self.KIND:
            raise UserError(
                f'{index} is an index of kind {kind!r}, but {type(self).__name__} reads '
                f"{self.KIND!r}. Fix: mmrank.ShardedCaptions for 'tar', mmrank.StreamedCaptions "
                "for 'stream'"
            )
        super().__init__(ann_file='', pipeline=pipeline, test_mode=test_mode, **kwargs)

    def full_init(self) -> None:
        """Compare the shards with the index; nothing is listed in memory."""
        if not self._fully_initialized:
            self.check_shards()
            self._fully_initialized = True

    def check_shards(self) -> None:
        """Compare the shards with the index; raise a ``UserError`` if they differ."""
        raise NotImplementedError

    def read(self, sample: int) -> ReadSample:
        """Read a sample, by its number in the index, from its shard."""
        raise NotImplementedError

    @property
    def index_digest(self) -> str:
        """Equal for data sets whose items have the same ``sample_idx``."""
        return f'{self.index.digest}-{self.unit}'

    @cached_property
    def shard_sizes(self) -> np.ndarray:
        """(S,) int64 numbers of items in the shards."""
        starts = self.index.starts
        if self.unit == 'pair':
            starts = np.asarray(self.index.first_texts[starts])
        return np.diff(starts)

    def __len__(self) -> int:
        """Number of pairs or images."""
        return len(self.index.text_ids if self.unit == 'pair' else self.index)

    def get_data_info(self, idx: int) -> dict:
        """What is known of an item without reading it."""
        return self._place(idx)[0]

    def _place(self, idx: int) -> tuple[dict, int, int]:
        """Data info, the image and, of a pair, which of its captions."""
        if not -len(self) <= idx < len(self):
            raise IndexError(f'item {idx} of {len(self)}')
        idx = int(idx) % len(self)
        first_texts, text_ids = self.index.first_texts, self.index.text_ids
        if self.unit == 'pair':
            image = int(np.searchsorted(first_texts, idx, side='right')) - 1
            text_id = int(text_ids[idx])
            caption = idx - int(first_texts[image])
        else:
            image, caption = idx, 0
            begin, end = first_texts[image : image + 2]
            text_id = text_ids[begin:end].tolist()
        shard, row = self.index.locate(image)
        name = self.index.shards[shard]['name']
        info = dict(img_path=f'{name}:{row}', image_id=image, text_id=text_id, sample_idx=idx)
        return info, image, caption

    def prepare_data(self, idx: int) -> dict:
        """Read an item and run the pipeline."""
        info, image, caption = self._place(idx)
        image, captions = self.read(image)
        text = captions[caption] if self.unit == 'pair' else captions
        return self.pipeline(dict(info, img_bytes=image, text=text))

    def changed(self, sample: int, how: str) -> UserError:
        """The error of a sample that is not what the index says."""
        shard, row = self.index.locate(sample)
        name = self.index.shards[shard]['name']
        return UserError(
            f'row {row} of shard {name} {how}: the shard has changed since '
            f'its samples were numbered in {self.index.folder}. Fix: put the '
            'old shard back; or make the index again and train from the start'
        )

    def extra_repr(self) -> list[str]:
        return [
            f'Index: \t{self.index.folder}',
            f'Shards: \t{len(self.index.shards)}',
            f'Unit: \t{self.unit}',
        ]


class ShardedCaptions(IndexedCaptions):
    """Images with captions in WebDataset's shards, on the disk.

    A data set with random access, for any sampler: a sample is read from the middle of its shard.
    ``mmrank.ShardSampler`` reads shards from front to back. The shards need an index, made once by

        python tools/dataset_converters/image_text_shards.py index FOLDER

    Args:
        data_root: Folder of the shards.
        index: Folder of the index; None: ``mmrank_index`` in ``data_root``.
        **kwargs: As for :class:`IndexedCaptions`.

    Raises:
        UserError: If the shards are not the index's.
    """

    KIND = 'tar'

    def __init__(self, data_root: str, index: str | None = None, **kwargs) -> None:
        folder = Path(data_root).expanduser()
        index = folder / INDEX_FOLDER if index is None else index
        super().__init__(index, data_root=str(folder), **kwargs)

    def check_shards(self) -> None:
        """Compare size and time of the shards, or else their samples."""
        check_tars(self.index, Path(self.data_root))

    def read(self, sample: int) -> ReadSample:
        """Read the bytes of the image and the captions."""
        shard, _ = self.index.locate(sample)
        path = os.path.join(self.data_root, self.index.shards[shard]['name'])
        place = self.index.places[sample]
        image, caption = (
            _read(path, int(place[name]), int(place[f'{name}_size']))
            for name in ('image', 'caption')
        )
        first, after = self.index.first_texts[sample : sample + 2]
        captions = captions_in(caption, self.index.source['caption'])
        if captions is None or len(captions) != after - first:
            raise self.changed(sample, 'has other captions')
        if len(image) != place['image_size']:
            raise self.changed(sample, 'is cut off')
        return ReadSample(image, captions)


def _read(path: str, offset: int, size: int) -> bytes:
    # A fork opens its own: file positions are shared.
    file = _opened(path, os.getpid())
    file.seek(offset)
    return file.read(size)


@lru_cache(maxsize=_MOST_FILES)
def _opened(path: str, process: int):
    return open_shard(Path(path))


class StreamedCaptions(IndexedCaptions):
    """Images with captions of a Hugging Face data set, streamed.

    Shards lie on the Hub, a web server or a bucket, in any form that ``datasets`` reads:
    WebDataset, Parquet, JSON. They are read from front to back, so take ``mmrank.ShardSampler``.
    With it the data set is as any other to mmengine: it has a length, its samples have numbers, and
    a training resumes anywhere, as what a batch holds follows from its number. The shuffle buffer
    of ``datasets`` is not used: its state does not hold what is in it. After a resume each shard
    that was being read is read again up to where it was.

    The stream needs an index, made once by

        python tools/dataset_converters/image_text_shards.py stream ...

    Args:
        index: Folder of the index. It names the data set and its columns.
        load: Arguments of ``datasets.load_dataset`` in place of the index's, where the
            shards have moved.
        keep: Samples that a process keeps that are read but not yet asked for: no fewer than the
            ``buffer`` of the sampler.
        **kwargs: As for :class:`IndexedCaptions`.

    Raises:
        UserImportError: If ``datasets`` is absent or of a wrong version.
        UserError: If the stream is not the index's.
    """

    KIND = 'stream'

    def __init__(self, index: str, load: dict | None = None, keep: int = 16384, **kwargs) -> None:
        check_at_least(1, keep=keep)
        self._load, self._keep = load, keep
        self._readers: ShardReaders | None = None
        self._process = 0
        self._warned = False
        super().__init__(index, **kwargs)

    def check_shards(self) -> None:
        """Compare the number of shards; rows are compared when read."""
        source = self.index.source
        load = source['load'] if self._load is None else dict(self._load)
        self._columns = StreamColumns(source['image'], source['caption'], source['key'])
        self._stream = open_stream(load)
        self._columns.check(self._stream)
        found, known = self._stream.num_shards, len(self.index.shards)
        if found != known:
            raise UserError(
                f'{load} has {found} shards, but its index {self.index.folder} has {known}. Fix: '
                'put the old shards back, or name their revision; or make the index again and '
                'train from the start'
            )

    def __getstate__(self) -> dict:
        # Each process opens the shards that it reads.
        return {**self.__dict__, '_readers': None}

    def read(self, sample: int) -> ReadSample:
        """Read up to a row; see :class:`~.stream.ShardReaders`."""
        if self._readers is None or self._process != os.getpid():
            self._process = os.getpid()
            self._readers = ShardReaders(self._stream, self._columns.names, self._keep)
        shard, number = self.index.locate(sample)
        row = self._readers.take(shard, number)
        self._warn_of_order()
        if row is None:
            raise self.changed(sample, 'is not there')
        captions = self._columns.captions(row) or []
        key = self._columns.key_of(row, number, captions)
        first, after = self.index.first_texts[sample : sample + 2]
        if digest_of(key) != self.index.keys[sample] or (len(captions) != after - first):
            raise self.changed(sample, 'has another key or other captions')
        image = self._columns.image_bytes(row)
        if image is None:
            raise UserError(
                f'row {number} of shard {shard} has no image in the column '
                f'{self._columns.image!r}. Fix: name the column of the image '
                'when you make the index: --image COLUMN'
            )
        return ReadSample(image, captions)

    def _warn_of_order(self) -> None:
        readers = self._readers
        # A resume passes over a part of each shard that is open.
        most = 4 * readers.num_taken + MOST_OPEN * int(self.shard_sizes.max())
        if self._warned or readers.num_read <= most:
            return
        self._warned = True
        MMLogger.get_current_instance().warning(
            f'{readers.num_read:,} rows were read for {readers.num_taken:,} '
            'samples, as they are not asked for in the order of the stream. '
            "Fix: sampler=dict(type='mmrank.ShardSampler', workers=...) with "
            '`workers` equal to num_workers of the data loader, and `keep` '
            'of the data set no less than `buffer` of the sampler.'
        )
