"""Transforms of images and captions."""

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmrank.errors import UserError
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
