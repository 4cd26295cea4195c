"""Images with captions in shards that are streamed. Imports mmpretrain."""

import os

from mmengine.logging import MMLogger

from mmrank.datasets.shards.indexed_captions import IndexedCaptions, ReadSample
from mmrank.datasets.shards.shard_index import digest_of
from mmrank.datasets.shards.stream import MOST_OPEN, ShardReaders, StreamColumns, open_stream
from mmrank.errors import UserError


class StreamedCaptions(IndexedCaptions):
    """Images with captions of a Hugging Face data set, streamed.

    Shards lie on the Hub, a web server or a bucket, in any form that ``datasets`` reads:
    WebDataset, Parquet, JSON. They are read from front to back, so take ``mmrank.ShardSampler``.
    With it the data set is as any
    other to mmengine: it has a length, its samples have numbers, and a training resumes anywhere,
    as what a batch holds follows from its number. The shuffle buffer of ``datasets`` is not used:
    its state does not hold what is in it. After a resume each shard that was being read is read
    again up to where it was.

    The stream needs an index, made once by

        python tools/dataset_converters/image_text_shards.py stream ...

    Args:
        index: Folder of the index. It names the data set and its columns.
        load: Arguments of ``datasets.load_dataset`` in place of those of the index, where the
            shards have moved.
        keep: Samples that a process keeps that are read but not yet asked
            for: no fewer than the ``buffer`` of the sampler.
        **kwargs: As for :class:`IndexedCaptions`.

    Raises:
        PackageError: If ``datasets`` is absent or of a wrong version.
        UserError: If the stream is not that of the index.
    """

    KIND = 'stream'

    def __init__(self, index: str, load: dict | None = None, keep: int = 16384, **kwargs) -> None:
        if keep < 1:
            raise ValueError(f'keep must be at least 1, got {keep}')
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
