"""Images with captions in tar shards on the disk. Imports mmpretrain."""

import os
from functools import lru_cache
from pathlib import Path

from mmrank.datasets.shards.indexed_captions import IndexedCaptions, ReadSample
from mmrank.datasets.shards.shard_index import INDEX_FOLDER
from mmrank.datasets.shards.tar_shard import captions_in, check_tars, open_shard

#: Files that a process keeps open.
_MOST_OPEN = 128


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
        UserError: If the shards are not those of the index.
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
    # A forked process opens its own: file positions are shared.
    file = _opened(path, os.getpid())
    file.seek(offset)
    return file.read(size)


@lru_cache(maxsize=_MOST_OPEN)
def _opened(path: str, process: int):
    return open_shard(Path(path))
