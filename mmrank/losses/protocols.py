"""What hooks and heads hand to losses, as protocols.

A loss of your own takes part as soon as it has the attributes of a protocol; no base class is
needed. ``isinstance(module, TakesClassCounts)`` asks for the names alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class TakesClassCounts(Protocol):
    """Takes the class counts of the training set, from ``mmrank.ClassCountsHook``."""

    num_columns: int | None  # of the scores, that is classes
    wants_class_counts: bool  # whether they are still needed

    def set_class_counts(self, counts: Sequence[int], num_samples: int | None = None) -> None:
        """Take (C,) samples of each class, and the number of samples."""


@runtime_checkable
class TakesPairCounts(Protocol):
    """Counts the positive pairs of the training set, from ``mmrank.PairCountsHook``."""

    wants_pair_counts: bool  # whether they are still needed

    def set_pairs(self, rows: Any, cols: Any, shape: tuple[int, int]) -> None:
        """Take (|O|,) rows and columns of an (m, n) matrix of pairs."""


@runtime_checkable
class TakesClassLabels(Protocol):
    """Takes the class of each image of the training set, from ``mmrank.ClassPairsHook``."""

    wants_class_labels: bool  # whether they are still needed

    def set_class_labels(self, labels: Any) -> None:
        """Take (N,) classes, in the order of ``sample_idx``."""


@runtime_checkable
class KeepsSampleState(Protocol):
    """Takes ``sample_idx``; ``mmrank.SampleIndexHook`` compares the number with the data."""

    keeps_samples: bool  # whether there is such state
    num_samples: int  # that the state is for


@runtime_checkable
class Reweights(Protocol):
    """Weights the classes from when ``mmrank.DeferredReweightingHook`` says so."""

    def start_reweighting(self) -> None:
        """Weight the classes from now on."""


@runtime_checkable
class TakesBoxValues(Protocol):
    """Takes values of boxes, from ``mmrank.ListwiseHead`` and ``mmrank.ListwiseBBoxHead``."""

    #: None, ``'quality'``: the IoU of each positive's box, as ``quality``; ``'loss'``: its box
    #: loss, as ``box_loss``. A head that cannot refuses it, unless ``requires_boxes = False``.
    box_input: str | None


@runtime_checkable
class HasLogitCentre(Protocol):
    """Knows which raw score heads show as 0.5 at test time."""

    def logit_centre(self) -> Any:
        """(1,) or (C,) tensor, or None to leave the scores as they are."""


@runtime_checkable
class HasDiagnostics(Protocol):
    """Has scalars for the log, which ``mmrank.RankingMonitorHook`` reads."""

    diagnostics: Mapping[str, Any]  # detached scalars of the last forward by name
    saturation_advice: str  # what to change then


@runtime_checkable
class TrainsEmbeddings(Protocol):
    """Ranks a gallery for each query, as ``mmrank.RetrievalHead`` needs."""

    scope: str  # ``global``: the queries of all ranks form one batch. ``local``: each rank's do.

    def embedding_loss(self, batch: Any) -> Any:
        """Loss of a :class:`mmrank.losses.EmbeddingBatch`."""
