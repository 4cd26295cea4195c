"""Data sets of images with captions. Imports mmpretrain."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from mmengine.fileio import exists, join_path
from mmpretrain.datasets import BaseDataset

from mmrank.datasets.captions.caption_files import (
    read_caption_table,
    read_coco_captions,
    read_karpathy,
)
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.one_size import OneSizeBatches
from mmrank.errors import UserError
from mmrank.settings import one_of


class CaptionDataset(OneSizeBatches, BaseDataset):
    """Base of data sets of images with captions.

    An item has ``img_path``, ``text``, ``image_id`` and ``text_id``, and ``gt_label`` where the
    images have classes. ``image_id`` counts the images from 0 and ``text_id`` the distinct
    captions; ``sample_idx`` counts the items, as in every data set. Let the pipeline end with

        dict(type='PackInputs', algorithm_keys=['text'],
             meta_keys=['sample_idx', 'image_id', 'text_id', 'img_path'])

    Args:
        unit: What an item is. ``pair``: an image and one caption; an image with five is in five
            items. ``image``: an image with the list of its captions, of which
            ``mmrank.RandomCaption`` can draw one. None: ``image`` in test mode, else ``pair``.
        **kwargs: As for ``mmpretrain.BaseDataset``: ``ann_file``, the file with the captions,
            ``data_root``, ``data_prefix``, the folder of the images, ``test_mode``, ...

    Raises:
        UserError: If the file cannot be used, or the images are not where they should be.
    """

    #: What ``mmrank.InBatchPairSampler`` draws: one sample of the pairs a batch.
    sampling = 'in_batch'

    def __init__(self, *args, unit: str | None = None, **kwargs) -> None:
        unit = unit or ('image' if kwargs.get('test_mode') else 'pair')
        one_of('unit', unit, ('pair', 'image'))
        self.unit = unit
        super().__init__(*args, **kwargs)

    def read_list(self) -> list:
        """Read the captions by image."""
        raise NotImplementedError

    def load_data_list(self) -> list[dict]:
        images = self.read_list()
        paths = [join_path(self.img_prefix, x.path) for x in images]
        if not exists(paths[0]):
            what = f'the first image of {self.ann_file} does not exist: {paths[0]}'
            raise UserError(what, 'check data_root and data_prefix')
        labels = self._labels({x.label for x in images} - {None})
        text_ids: dict[str, int] = {}
        items = []
        for image_id, (path, image) in enumerate(zip(paths, images)):
            texts = image.captions
            ids = [text_ids.setdefault(x, len(text_ids)) for x in texts]
            common = dict(img_path=path, image_id=image_id)
            if labels:
                common['gt_label'] = labels[image.label]
            if self.unit == 'image':
                items.append(dict(common, text=texts, text_id=ids))
            else:
                items += [dict(common, text=x, text_id=text_id) for x, text_id in zip(texts, ids)]
        return items

    def _labels(self, names: set[str]) -> dict[str, int]:
        if not names:
            return {}
        classes = tuple(self._metainfo.get('classes') or sorted(names))
        unknown = sorted(names - set(classes))
        if unknown:
            what = f'{self.ann_file} has the class {unknown[0]!r}'
            raise UserError(f'{what}, which is none of classes={classes[:6]}', 'correct classes')
        self._metainfo['classes'] = classes
        return {name: label for label, name in enumerate(classes)}

    @cached_property
    def interactions(self) -> Interactions:
        """Images and captions as the positive pairs of a two-tower."""
        if self.unit != 'pair':
            raise ValueError(f"unit={self.unit!r} has no pairs to sample; use unit='pair'")
        infos = [self.get_data_info(i) for i in range(len(self))]
        rows, cols = (np.array([x[key] for x in infos]) for key in ('image_id', 'text_id'))
        pairs = Interactions(rows, cols, range(rows.max() + 1), range(cols.max() + 1))
        if pairs.num_repeated:
            what = f'{pairs.num_repeated} captions repeat another of the same image'
            fix = f'leave the repeated ones out of {self.ann_file}'
            raise UserError(f'{what}, and in-batch sampling counts each pair once', fix)
        return pairs


class CaptionTable(CaptionDataset):
    """Captions from a table, as in Conceptual Captions.

    See :func:`~.caption_files.read_caption_table` for the forms: TSV with a line of names, JSONL,
    JSON.

    Args:
        image_key: Key or column with the path of the image.
        caption_key: That with the caption.
        label_key: That with the name of its class, or None.
        **kwargs: As for :class:`CaptionDataset`. ``classes`` orders the labels; without it they
            follow the alphabet.
    """

    def __init__(
        self,
        *args,
        image_key: str = 'image',
        caption_key: str = 'caption',
        label_key: str | None = None,
        **kwargs,
    ) -> None:
        self.keys = (image_key, caption_key, label_key)
        super().__init__(*args, **kwargs)

    def read_list(self) -> list:
        return read_caption_table(self.ann_file, *self.keys)


class COCOCaptions(CaptionDataset):
    """COCO's ``captions_train2017.json`` and its like; arguments of :class:`CaptionDataset`."""

    def read_list(self) -> list:
        return read_coco_captions(self.ann_file)


class KarpathyCaptions(CaptionDataset):
    """Flickr30K or COCO in the splits of Karpathy and Fei-Fei (CVPR 2015).

    Args:
        split: ``train``, ``val``, ``test``; for COCO also ``restval``, which is mostly taken
            together with ``train``: a list of them.
        **kwargs: As for :class:`CaptionDataset`.
    """

    def __init__(self, *args, split: str | Sequence[str] = 'train', **kwargs) -> None:
        self.splits = [split] if isinstance(split, str) else list(split)
        super().__init__(*args, **kwargs)

    def read_list(self) -> list:
        return read_karpathy(self.ann_file, self.splits)
