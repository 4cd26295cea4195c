"""Transforms: checks, captions, and stored outputs of frozen stages. Imports mmcv."""

import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmrank.errors import UserError
from mmrank.files import replace_atomically, write_atomically
from mmrank.registry import TRANSFORMS


@TRANSFORMS.register_module()
class CheckFinite(BaseTransform):
    """Stops at an image with a NaN or infinite pixel, by a ``UserError`` that names its file.

    One such pixel makes the loss and then all weights NaN. Put it behind what yields floats: a
    reader of medical or raw formats, a normalisation that may divide by 0. Whole-number images pass
    at no cost.

    Example:
        >>> CheckFinite()(dict(img=np.zeros((2, 2))))['img'].shape
        (2, 2)
    """

    def transform(self, results: dict) -> dict:
        images = results['img']  # one, or the list of its views
        for image in images if isinstance(images, list) else [images]:
            bad = np.argwhere(~np.isfinite(image)) if np.asarray(image).dtype.kind == 'f' else ()
            if len(bad):
                raise UserError(
                    f'image {results.get("img_path", "without a file")} (sample_idx '
                    f'{results.get("sample_idx")}) has {len(bad)} of {np.size(image)} values that '
                    f'are NaN or infinite, the first at {bad[0].tolist()}. Fix: repair or leave '
                    'out the file, or the transform before this one'
                )
        return results


@TRANSFORMS.register_module()
class RandomCaption(BaseTransform):
    """Keeps one caption of each image, another one each time.

    For data sets with ``unit='image'``, whose ``text`` and ``text_id`` are lists. Draws from
    NumPy's global generator, as the transforms of mmcv do.

    Example:
        >>> RandomCaption()(dict(text=['a cat'], text_id=[7]))
        {'text': 'a cat', 'text_id': 7}
    """

    @cache_randomness
    def _draw(self, number: int) -> int:
        return int(np.random.randint(number))

    def transform(self, results: dict) -> dict:
        texts = results['text']
        if isinstance(texts, str):
            raise UserError(f"text={texts!r:.80} is one caption. Fix: unit='image' of the data set")
        number = self._draw(len(texts))
        results.update({key: results[key][number] for key in ('text', 'text_id')})
        return results


class FeatureCache:
    """Feature maps of some views of each image, in a file that is mapped.

    ``FILE.npy`` holds (N, 1 + V, C, H, W) in float16, the view of the test pipeline first;
    ``FILE.json`` holds the paths of the N images, relative to their common folder, that folder
    relative to its own, and what made them. So images and cache may move together.

    Args:
        path: ``FILE``, without a suffix.

    Attributes:
        maps: The array, mapped: it takes no memory until it is read.

    Raises:
        UserError: If the two files are not there, are damaged or do not fit.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        index, array = self.files(path)
        try:
            content = json.loads(index.read_bytes())
            self.maps = np.load(array, mmap_mode='r')
            self._root = os.path.realpath(index.parent / content['root'])
            self._rows = {name: row for row, name in enumerate(content['paths'])}
            if content['shape'] != list(self.maps.shape) or len(self._rows) != len(self.maps):
                raise ValueError(f'they are of two versions, one of shape {content["shape"]}')
            if self.maps.dtype != np.float16:
                raise ValueError(f'the array holds {self.maps.dtype}, not float16')
        except Exception as error:  # damaged bytes raise anything
            what = f'cache={str(path)!r}: {index.name} and {array.name} cannot be read'
            fix = 'write them by tools/dataset_converters/cache_features.py'
            raise UserError(f'{what}: {type(error).__name__}: {error!s:.200}', fix) from error

    @staticmethod
    def files(path: str | os.PathLike) -> tuple[Path, Path]:
        return Path(f'{path}.json'), Path(f'{path}.npy')

    def row(self, img_path: str) -> int:
        """Row of an image; raises a ``UserError`` if the cache does not have it."""
        name = os.path.relpath(os.path.realpath(img_path), self._root)
        if name not in self._rows:
            what = f'the cache of {self._root} has no image {name!r} ({len(self._rows)} others)'
            raise UserError(what, 'write the cache again with a config whose data sets hold it')
        return self._rows[name]

    @classmethod
    def write(
        cls,
        path: str | os.PathLike,
        paths: Sequence[str],
        views: Sequence[Iterator[np.ndarray]],
        made_by: dict,
    ) -> None:
        """Write a cache of N images; the index comes last, so a part is never read.

        ``views`` holds for each view the N maps, (C, H, W) each, and ``made_by`` what made them.
        """
        index, array = cls.files(path)
        paths = [os.path.realpath(path) for path in paths]
        root = os.path.commonpath([os.path.dirname(x) for x in paths])
        with replace_atomically(array) as part:
            maps = None
            for view, stream in enumerate(views):
                for row, values in enumerate(stream):
                    if maps is None:
                        shape = (len(paths), len(views), *values.shape)
                        maps = np.lib.format.open_memmap(part, 'w+', np.float16, shape)
                    if not np.abs(values).max() < 65504:
                        what = f'the map of {paths[row]} has values of {np.abs(values).max()}'
                        raise UserError(f'{what}, above what float16 holds', 'another stage')
                    maps[row, view] = values
            maps.flush()
            del maps
            index.unlink(missing_ok=True)
        content = {
            'root': os.path.relpath(root, os.path.realpath(array.parent)),
            'shape': shape,
            'made_by': made_by,
            'paths': [os.path.relpath(x, root) for x in paths],
        }
        write_atomically(json.dumps(content, indent=0).encode(), index)


#: One mapping for the pipelines of all data sets of a process.
_opened = cache(FeatureCache)


@TRANSFORMS.register_module()
class LoadCachedFeatures(BaseTransform):
    """Reads the stored feature map of an image instead of the image.

    It stands where ``LoadImageFromFile`` and the random transforms would, for a model that begins
    behind the frozen stages (``mmrank.TIMMStages(start=...)``). Values are not pixels: set
    ``data_preprocessor=dict(mean=None, std=None)``. It reads ``img_path``; added are ``img`` (H, W,
    C) float32, ``img_shape`` and ``ori_shape``.

    Args:
        cache: What ``tools/dataset_converters/cache_features.py`` wrote, without a suffix.
        random_view: Take one of the random views, as in training; else the test pipeline's.
    """

    def __init__(self, cache: str, random_view: bool = False) -> None:
        self.cache = cache
        self.random_view = random_view
        if _opened(cache).maps.shape[1] < 1 + random_view:
            what = f'random_view=True, but the cache {cache} has no random view'
            raise UserError(what, 'write it with --views 4')

    @cache_randomness
    def _view(self) -> int:
        return 1 + np.random.randint(_opened(self.cache).maps.shape[1] - 1)

    def transform(self, results: dict) -> dict:
        stored = _opened(self.cache)
        view = self._view() if self.random_view else 0
        values = stored.maps[stored.row(results['img_path']), view]
        image = np.ascontiguousarray(values.transpose(1, 2, 0), dtype=np.float32)
        shape = image.shape[:2]
        return {**results, 'img': image, 'img_shape': shape, 'ori_shape': shape}
