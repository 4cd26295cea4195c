"""The options that losses pass on to their bases, which an editor lists in place of ``**kwargs``.

:func:`mmrank.losses.setting_names.signature_of` reads them as well: what is not here is not taken.
The bases, which are named here, document them.
"""

from collections.abc import Sequence
from typing import TypedDict

from typing_extensions import Unpack as Unpack


class ScopeOptions(TypedDict, total=False):
    scope: str
    loss_weight: float


class CLIPOptions(ScopeOptions, total=False):  # CLIPLoss
    tau: float
    learnable: bool
    tau_min: float
    tau_max: float


class TemperatureOptions(ScopeOptions, total=False):  # ISogCLRLoss, for any kind of data
    eta: float
    beta0: float
    beta1: float
    storage: str
    load_state: bool
    gradient_clip: float | None


class HeadOptions(ScopeOptions, total=False):  # PointwiseLoss
    use_sigmoid: bool


class SoftmaxOptions(ScopeOptions, total=False):  # ClassCountLoss with softmax
    class_counts: Sequence[int] | None
    num_samples: int | None


class ClassCountOptions(HeadOptions, SoftmaxOptions, total=False):  # ClassCountLoss
    pass


class QualityOptions(HeadOptions, total=False):  # QualityLoss
    use_iou: bool
    num_classes: int | None


class LogitOptions(HeadOptions, total=False):  # RankingLoss without an activation
    num_classes: int | None
    mode: str
    reduction: str


class ListOptions(HeadOptions, total=False):  # RankingLoss but for num_classes and mode
    activation: str
    reduction: str


class PerClassOptions(ListOptions, total=False):  # RankingLoss but for mode
    num_classes: int | None


class RankingOptions(PerClassOptions, LogitOptions, total=False):  # RankingLoss
    pass
