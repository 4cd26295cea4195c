"""What encoders return, and what heads take of it."""

from collections.abc import Sequence

from torch import Tensor


def last_features(feats: Tensor | Sequence[Tensor]) -> Tensor:
    """The output of an encoder; of one that returns several stages, the last."""
    return feats[-1] if isinstance(feats, (tuple, list)) else feats


def feature_rows(
    feats: Tensor | Sequence[Tensor], channels: int | None = None, option: str = ''
) -> Tensor:
    """:func:`last_features` of (n, channels); ValueError for another shape.

    ``channels`` None is any width; ``option`` is the name of the setting for it, for the message.
    """
    last = last_features(feats)
    if last.dim() != 2 or (channels is not None and channels != last.size(1)):
        set_width = f'set {option}, and ' if option else ''
        raise ValueError(
            f'the head needs features (images, {channels or "length"}), got shape '
            f'{tuple(last.shape)}; {set_width}end the encoder with '
            "dict(type='mmpretrain.GlobalAveragePooling')"
        )
    return last
