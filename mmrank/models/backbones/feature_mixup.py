"""Mixes the features of one class before the stages of a network."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def class_mixture(features: Tensor, labels: Tensor, v: Tensor, u: float) -> Tensor:
    """Features moved towards a weighted mean of their class.

    ``u z_i + (1-u) sum_j v_j z_j / sum_j v_j`` over the samples j of i's class, i among them.
    Source: stable AP (2025), section 7.1.1.2 (2), with v normalised.

    Args:
        features: (B, ...) floats.
        labels: (B,) integer classes.
        v: (B,) weights > 0, float32 or float64.
        u: Share of the sample's own features, in [0, 1].

    Returns:
        (B, ...) in the dtype of the features.
    """
    share = v * (labels[:, None] == labels)
    share = (1 - u) * share / share.sum(1, keepdim=True)
    flat = features.flatten(1)
    # Half precision is kept for the large product alone.
    mixed = u * flat + share.to(flat.dtype) @ flat
    return mixed.to(features.dtype).view_as(features)


class FeatureMixupMixin:
    """Put before a backbone: the batch doubles before each named stage.

    Args:
        *args: As for the backbone.
        mixup_stages: Names of the stages, such as ``layer3`` or ``blocks.2``.
        mixup_share: u.
        **kwargs: As for the backbone.

    Raises:
        ValueError: If ``mixup_share`` is out of range or a stage does not exist.
    """

    def __init__(self, *args, mixup_stages: tuple[str, ...], mixup_share: float, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        if not 0 <= mixup_share <= 1:
            raise ValueError(f'u must be in [0, 1], got {mixup_share!r}')
        if not mixup_stages:
            raise ValueError(
                'stages is empty: set a stage, or use the backbone without DeepFeatureMixup'
            )
        stages = dict(self.named_modules())
        for name in mixup_stages:
            if name not in stages:
                children = sorted(dict(self.named_children()))
                raise ValueError(
                    f'stages={mixup_stages!r}: the backbone has no {name!r}, '
                    f'only {children} and what is in them'
                )
        self.mixup_share = mixup_share
        self.copies = 2 ** len(mixup_stages)
        self._labels: Tensor | None = None
        for name in mixup_stages:
            stages[name].register_forward_pre_hook(self._join)

    @contextmanager
    def mixing(self, labels: Tensor) -> Iterator[None]:
        """Within, a forward returns its batch ``copies`` times.

        The originals come first; row i of every copy is of class ``labels[i]``.

        Args:
            labels: (B,) integer classes of the batch.
        """
        self._labels = labels
        try:
            yield
        finally:
            self._labels = None

    def _join(self, stage, inputs: tuple) -> tuple:
        if self._labels is None:
            return inputs
        features, *others = inputs
        batch = features.size(0)
        # A rank may have no image at all.
        labels = self._labels.repeat(batch // max(self._labels.size(0), 1))
        if labels.size(0) != batch:
            raise RuntimeError(
                f'a stage got {batch} features for {self._labels.size(0)} labels; deep feature '
                'mixup requires a backbone with sequential stages'
            )
        dtype = torch.promote_types(features.dtype, torch.float32)
        # In (0, 1]: the weights of a class never sum to 0.
        v = 1 - torch.rand(batch, device=features.device, dtype=dtype)
        mixed = class_mixture(features, labels, v, self.mixup_share)
        return (torch.cat([features, mixed]), *others)
