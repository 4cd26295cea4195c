"""What data sets of captions in shards share. Imports mmpretrain."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from mmpretrain.datasets import BaseDataset

from mmrank.datasets.captions.caption_dataset import UNITS
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.datasets.shards.shard_index import ShardIndex, read_index
from mmrank.errors import UserError


class ReadSample(NamedTuple):
    """What a shard holds of a sample.

    Attributes:
        image: Bytes of the image file.
        captions: As many as the index knows.
    """

    image: bytes
    captions: list[str]


class IndexedCaptions(OneSizeBatches, BaseDataset):
    """Base of data sets of images with captions in shards.

    Items are those of :class:`~mmrank.datasets.captions.caption_dataset.\
CaptionDataset`, with the bytes of the image file in ``img_bytes``: let the pipeline begin with
    ``dict(type='mmrank.LoadImageFromBytes')``. The index of the shards gives each the same
    ``sample_idx``, ``image_id`` and ``text_id`` in every training; losses keep state by them.

    Args:
        index: Folder with the index.
        unit: What an item is, ``pair`` or ``image``; see there.
        pipeline: Transforms.
        test_mode: See mmengine's ``BaseDataset``.
        metainfo: See mmengine's ``BaseDataset``.
        data_root: Where the shards are.

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
        metainfo: dict | None = None,
        data_root: str = '',
    ) -> None:
        unit = unit or ('image' if test_mode else 'pair')
        if unit not in UNITS:
            raise ValueError(f'unit must be one of {UNITS}, got {unit!r}')
        self.unit = unit
        self.index: ShardIndex = read_index(index)
        kind = self.index.source.get('kind')
        if kind != self.KIND:
            raise UserError(
                f'{index} is an index of kind {kind!r}, but '
                f'{type(self).__name__} reads {self.KIND!r}. Fix: '
                "mmrank.ShardedCaptions for 'tar', mmrank.StreamedCaptions "
                "for 'stream'"
            )
        super().__init__(
            ann_file='',
            metainfo=metainfo,
            data_root=data_root,
            pipeline=pipeline,
            test_mode=test_mode,
        )

    def full_init(self) -> None:
        """Compare the shards with the index; nothing is listed in memory."""
        if not self._fully_initialized:
            self.check_shards()
            self._fully_initialized = True

    def check_shards(self) -> None:
        """Compare the shards with the index.

        Raises:
            UserError: If they differ.
        """
        raise NotImplementedError

    def read(self, sample: int) -> ReadSample:
        """Read a sample from its shard.

        Args:
            sample: Its number in the index.

        Raises:
            UserError: If the shard cannot be read, or is not that of the index.
        """
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
        if self.unit == 'pair':
            return len(self.index.text_ids)
        return len(self.index)

    def get_data_info(self, idx: int) -> dict:
        """What is known of an item without reading it.

        Args:
            idx: Its position.
        """
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
        """Read an item and run the pipeline.

        Args:
            idx: Its position.
        """
        info, image, caption = self._place(idx)
        image, captions = self.read(image)
        text = captions[caption] if self.unit == 'pair' else captions
        return self.pipeline(dict(info, img_bytes=image, text=text))

    def changed(self, sample: int, how: str) -> UserError:
        """The error of a sample that is not what the index says.

        Args:
            sample: Its number in the index.
            how: What is different.
        """
        shard, row = self.index.locate(sample)
        name = self.index.shards[shard]['name']
        return UserError(
            f'row {row} of shard {name} {how}: the shard has changed since '
            f'its samples were numbered in {self.index.folder}. Fix: put the '
            'old shard back; or make the index again and train from the start'
        )

    def extra_repr(self) -> list[str]:
        """Describe the shards."""
        return [
            f'Index: \t{self.index.folder}',
            f'Shards: \t{len(self.index.shards)}',
            f'Unit: \t{self.unit}',
        ]
