"""What encoders return, and what heads take of it."""

from collections.abc import Sequence

from torch import Tensor


def last_features(feats: Tensor | Sequence[Tensor]) -> Tensor:
    """The output of an encoder; of one that returns several stages, the last."""
    return feats[-1] if isinstance(feats, (tuple, list)) else feats
