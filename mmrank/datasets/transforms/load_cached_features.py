"""Stored outputs of frozen stages, in place of images."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmrank.errors import UserError
from mmrank.files import replace_atomically, write_atomically
from mmrank.registry import TRANSFORMS


class FeatureCache:
    """Feature maps of some views of each image, in a file that is mapped.

    ``FILE.npy`` holds (N, 1 + V, C, H, W) in float16, the view of the test pipeline first;
    ``FILE.json`` holds the paths of the N images, relative to their common folder, that folder
    relative to its own, and what made them. So images and cache may move together.

    Args:
        path: ``FILE``, without a suffix.

    Attributes:
        maps: The array, mapped: it takes no memory until it is read.
        made_by: What the writer states, such as stage and weights.

    Raises:
        UserError: If the two files are not there or do not fit.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        stem = Path(path)
        index, array = self.files(stem)
        if not (index.is_file() and array.is_file()):
            raise UserError(
                f'cache={str(path)!r}: there is no {index.name} with {array.name}. Fix: write it '
                'by tools/dataset_converters/cache_features.py'
            )
        try:
            content = json.loads(index.read_text(encoding='utf-8'))
            self.maps = np.load(array, mmap_mode='r')
            self.root = os.path.realpath(stem.parent / content['root'])
            self.made_by = content['made_by']
            self._rows = {name: row for row, name in enumerate(content['paths'])}
            stated = (content['shape'][0] == len(self._rows)) and [*content['shape'], 'float16']
            found = [*self.maps.shape, str(self.maps.dtype)]
        # Damaged bytes raise anything.
        except Exception as error:
            raise UserError(
                f'{index} or {array.name} is damaged: {type(error).__name__}: {error!s:.200}',
                'write the cache again',
            ) from error
        if found != stated:
            raise UserError(
                f'{array} holds {found}, but {index.name} states {stated or "other rows"}: they '
                'are of two versions or damaged. Fix: write the cache again'
            )

    @staticmethod
    def files(stem: Path) -> tuple[Path, Path]:
        """Index and array of a cache."""
        return (stem.with_name(stem.name + '.json'), stem.with_name(stem.name + '.npy'))

    def row(self, img_path: str) -> int:
        """Row of an image; raises a ``UserError`` if the cache does not have it."""
        name = os.path.relpath(os.path.realpath(img_path), self.root)
        try:
            return self._rows[name]
        except KeyError:
            raise UserError(
                f'the cache of {self.root} has no image {name!r} ({len(self._rows)} others). Fix: '
                'write the cache again with a config whose data sets hold it'
            ) from None

    @classmethod
    def write(
        cls,
        path: str | os.PathLike,
        paths: Sequence[str],
        views: Iterable[Iterator[np.ndarray]],
        made_by: dict,
    ) -> None:
        """Write a cache of N images; the index comes last, so a part is never read.

        ``views`` holds for each view the N maps, (C, H, W) each, and ``made_by`` what made them.
        """
        index, array = cls.files(Path(path))
        array.parent.mkdir(parents=True, exist_ok=True)
        for there in filter(Path.exists, (index, array)):
            if not _is_index(index):
                raise UserError(
                    f'{there} is not of a cache of features, and would be lost. Fix: name another '
                    'OUT, or move the file away'
                )
        paths = [os.path.realpath(path) for path in paths]
        root = os.path.commonpath([os.path.dirname(x) for x in paths])
        views = list(views)
        with replace_atomically(array) as part:
            maps = None
            for view, stream in enumerate(views):
                for row, values in enumerate(stream):
                    if maps is None:
                        shape = (len(paths), len(views), *values.shape)
                        maps = np.lib.format.open_memmap(part, 'w+', np.float16, shape)
                    if not np.abs(values).max() < 65504:
                        raise UserError(
                            f'the map of {paths[row]} has values of {np.abs(values).max()}, above '
                            'what float16 holds. Fix: another stage'
                        )
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


def _is_index(path: Path) -> bool:
    try:
        return {'root', 'made_by', 'paths'} <= {*json.loads(path.read_bytes())}
    except (OSError, ValueError, TypeError):
        return False


#: One mapping for the pipelines of all data sets of a process.
opened = cache(FeatureCache)


@TRANSFORMS.register_module()
class LoadCachedFeatures(BaseTransform):
    """Reads the stored feature map of an image instead of the image.

    It stands where ``LoadImageFromFile`` and the random transforms would, for a model that begins
    behind the frozen stages (``mmrank.TIMMStages(start=...)``). Values are not pixels: set
    ``data_preprocessor=dict(mean=None, std=None)``.

    Required keys: ``img_path``. Added: ``img`` (H, W, C) float32, ``img_shape``, ``ori_shape``.

    Args:
        cache: What ``tools/dataset_converters/cache_features.py`` wrote, without a suffix.
        random_view: Take one of the random views, as in training; else the view of the test
            pipeline.

    Raises:
        UserError: If the cache is absent, has no random view, or lacks the image.
    """

    def __init__(self, cache: str, random_view: bool = False) -> None:
        self.cache, self.random_view = cache, random_view
        views = opened(cache).maps.shape[1]
        if random_view and views < 2:
            raise UserError(
                f'random_view=True, but the cache {cache} has no random view. '
                'Fix: write it with --views 4'
            )

    @cache_randomness
    def _view(self) -> int:
        return 1 + np.random.randint(opened(self.cache).maps.shape[1] - 1)

    def transform(self, results: dict) -> dict:
        """Add the map of ``img_path``."""
        stored = opened(self.cache)
        view = self._view() if self.random_view else 0
        values = stored.maps[stored.row(results['img_path']), view]
        image = np.ascontiguousarray(values.transpose(1, 2, 0), dtype=np.float32)
        results['img'] = image
        results['img_shape'] = results['ori_shape'] = image.shape[:2]
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(cache={self.cache!r}, random_view={self.random_view})'
