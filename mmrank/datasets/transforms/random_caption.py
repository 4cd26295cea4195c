"""Draws one caption of an image."""

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmrank.registry import TRANSFORMS


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
        """Replace the lists by one of their elements.

        Args:
            results: Item with ``text`` and ``text_id``.

        Returns:
            The item.

        Raises:
            ValueError: If ``text`` is no list of captions.
        """
        texts = results['text']
        if isinstance(texts, str) or not texts:
            raise ValueError(
                f'text={texts!r} is not a list of captions; RandomCaption is '
                "for data sets with unit='image'"
            )
        number = self._draw(len(texts))
        for key in ('text', 'text_id'):
            results[key] = results[key][number]
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}()'
