"""Decodes images that a data set has read."""

import mmcv
from mmcv.transforms import LoadImageFromFile

from mmrank.errors import UserError
from mmrank.registry import TRANSFORMS


@TRANSFORMS.register_module()
class LoadImageFromBytes(LoadImageFromFile):
    """Decodes ``img_bytes``, as mmcv's ``LoadImageFromFile`` does a file.

    For data sets whose images lie in shards, such as ``mmrank.ShardedCaptions``.

    Args:
        to_float32: See mmcv's ``LoadImageFromFile``.
        color_type: See there.
        imdecode_backend: See there.
    """

    def __init__(
        self, to_float32: bool = False, color_type: str = 'color', imdecode_backend: str = 'cv2'
    ) -> None:
        super().__init__(
            to_float32=to_float32, color_type=color_type, imdecode_backend=imdecode_backend
        )

    def transform(self, results: dict) -> dict:
        """Replace ``img_bytes`` by ``img``.

        Args:
            results: Item with ``img_bytes`` and ``img_path``.

        Returns:
            The item.

        Raises:
            KeyError: If it has no ``img_bytes``.
            UserError: If they are no image.
        """
        data = results.pop('img_bytes')
        name = results.get('img_path')
        try:
            image = mmcv.imfrombytes(data, flag=self.color_type, backend=self.imdecode_backend)
        # Backends raise anything.
        except Exception as error:
            raise _broken(name, f'{type(error).__name__}: {error}') from error
        if image is None:
            raise _broken(name, f'{len(data):,} bytes are no image')
        if self.to_float32:
            image = image.astype('float32')
        results['img'] = image
        results['img_shape'] = results['ori_shape'] = image.shape[:2]
        return results


def _broken(name: str | None, why: str) -> UserError:
    return UserError(
        f'image {name} (shard:row) cannot be decoded: {why}. Fix: write the '
        'shard without it, or set imdecode_backend to one that reads it'
    )
