"""Refuses images with NaN or infinite pixels."""

import numpy as np
from mmcv.transforms import BaseTransform

from mmrank.registry import TRANSFORMS


@TRANSFORMS.register_module()
class CheckFinite(BaseTransform):
    """Stops at an image with a NaN or infinite pixel, naming its file.

    One such pixel makes the loss and then all weights NaN. Put it behind what yields floats: a
    reader of medical or raw formats, a normalisation that may divide by 0. Whole-number images pass
    at no cost.

    Args:
        key: Of the image, or the list of its views.

    Example:
        >>> CheckFinite()(dict(img=np.zeros((2, 2))))['img'].shape
        (2, 2)
    """

    def __init__(self, key: str = 'img') -> None:
        self.key = key

    def transform(self, results: dict) -> dict:
        """Check.

        Args:
            results: Item with the image, an array.

        Returns:
            The item, as it is.

        Raises:
            ValueError: If a pixel is not finite.
        """
        images = results[self.key]
        for image in images if isinstance(images, list) else [images]:
            image = np.asarray(image)
            if image.dtype.kind != 'f' or np.isfinite(image).all():
                continue
            bad = ~np.isfinite(image)
            where = results.get('img_path', 'without a file')
            raise ValueError(
                f'image {where} (sample_idx {results.get("sample_idx")}) has {int(bad.sum())} of '
                f'{image.size} values that are NaN or infinite, the first at '
                f'{np.argwhere(bad)[0].tolist()}. Fix: repair or leave out the file, or the '
                'transform before this one'
            )
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(key={self.key!r})'
