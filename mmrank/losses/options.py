"""The options that losses pass on to their bases, which an editor lists in place of ``**kwargs``.

:func:`mmrank.losses.setting_names.signature_of` reads them as well: what is not here is not taken.
The bases document them.
"""

from collections.abc import Sequence
from typing import TypedDict

from typing_extensions import Unpack as Unpack


class ScopeOptions(TypedDict, total=False):
    """Options of all losses of batches."""

    scope: str
    loss_weight: float


class ContrastiveOptions(ScopeOptions, total=False):
    """Those of ``ContrastiveLoss``."""

    normalize: bool
    gather: str


class CLIPOptions(ContrastiveOptions, total=False):
    """Those of ``CLIPLoss``."""

    tau: float
    learnable: bool
    tau_min: float
    tau_max: float


class TemperatureOptions(ContrastiveOptions, total=False):
    """Those of ``ISogCLRLoss`` whose defaults are not those of one kind of data."""

    eta: float
    beta0: float
    beta1: float
    storage: str
    load_state: bool
    momentum_dtype: str
    gradient_clip: float | None


class HeadOptions(ScopeOptions, total=False):
    """Those of losses that a head calls."""

    use_sigmoid: bool


class ClassCountOptions(ScopeOptions, total=False):
    """Those of ``ClassCountLoss`` where softmax is chosen."""

    class_counts: Sequence[int] | None
    num_samples: int | None


class ClassCountHeadOptions(HeadOptions, ClassCountOptions, total=False):
    """Those of ``ClassCountLoss``."""


class QualityOptions(HeadOptions, total=False):
    """Those of ``QualityLoss``."""

    use_iou: bool
    num_classes: int | None


class LogitOptions(HeadOptions, total=False):
    """Those of ``RankingLoss`` where the activation is chosen."""

    num_classes: int | None
    mode: str
    reduction: str


class ListOptions(HeadOptions, total=False):
    """Those of ``RankingLoss`` beside ``num_classes`` and ``mode``."""

    activation: str
    reduction: str


class PerClassOptions(ListOptions, total=False):
    """Those of ``RankingLoss`` beside ``mode``."""

    num_classes: int | None


class RankingOptions(PerClassOptions, LogitOptions, total=False):
    """Those of ``RankingLoss``."""
