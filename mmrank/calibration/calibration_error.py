"""Expected calibration errors of scores, and the bins they are made of."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.settings import check_at_least
from mmrank.tensors import shares


@dataclass(frozen=True)
class ReliabilityBins:
    """Scores in J bins of equal width: a reliability diagram as numbers."""

    count: Tensor  # (J,) int64 scores in each bin
    confidence: Tensor  # (J,) float64 mean score of each bin; NaN where it is empty
    accuracy: Tensor  # (J,) float64 mean target of each bin; NaN where it is empty

    @property
    def error(self) -> Tensor:
        """The expected calibration error; NaN without a score."""
        gap = (self.accuracy - self.confidence).abs()
        share = self.count.double() / self.count.sum()
        return (share * torch.where(self.count > 0, gap, 0.0)).sum()


def reliability_bins(scores: Tensor, targets: Tensor, num_bins: int = 25) -> ReliabilityBins:
    """Means of (n,) scores and targets, both in [0, 1], in bins of equal width.

    Bin j holds the scores in ``(j / J, (j + 1) / J]``, the first one 0 as well. A ``ValueError``
    says if shapes differ or a number is outside [0, 1].
    """
    if scores.dim() != 1 or scores.shape != targets.shape:
        what = 'scores and targets must be 1-D of one length'
        raise ValueError(f'{what}, got shapes {tuple(scores.shape)} and {tuple(targets.shape)}')
    check_at_least(1, num_bins=num_bins)
    fix = 'probabilities, for example scores.sigmoid()'
    scores = shares('scores', scores.detach().double(), fix)
    targets = shares('targets', targets.detach().double(), '0 and 1, or IoUs')
    # In float64, as the scores: 0.7 in float32 is another edge.
    edges = torch.arange(num_bins + 1, dtype=torch.float64, device=scores.device).div(num_bins)
    place = (torch.searchsorted(edges, scores.contiguous()) - 1).clamp_(min=0)
    count = torch.bincount(place, minlength=num_bins)
    means = [
        torch.zeros_like(edges[1:], dtype=torch.float64).index_add_(0, place, x) / count
        for x in (scores, targets)
    ]
    return ReliabilityBins(count, *means)


def expected_calibration_error(scores: Tensor, targets: Tensor, num_bins: int = 25) -> Tensor:
    r"""Expected calibration error.

    .. math:: ECE = \sum_j \frac{n_j}{n} |acc(j) - conf(j)|

    over the bins of :func:`reliability_bins`: Naeini et al., "Obtaining Well Calibrated
    Probabilities Using Bayesian Binning", AAAI 2015. With the labels of one class as targets it is
    the ECE of a one-vs-rest classifier.

    For a detector it is the **D-ECE** of Küppers et al., "Multivariate Confidence Calibration for
    Object Detection", CVPR workshops 2020, in its form by the confidence alone: ``scores`` are the
    boxes' scores, ``targets`` tell which of them match an object, so that acc(j) is the precision
    of a bin.

    Args:
        scores: (n,) floats in [0, 1].
        targets: (n,) 0, 1, bool, or numbers between.
        num_bins: Number of bins.

    Returns:
        Float64 scalar in [0, 1]; NaN without a score.

    Example:
        >>> expected_calibration_error(torch.tensor([0.9, 0.9, 0.2]),
        ...                            torch.tensor([1, 0, 0]))
        tensor(0.3333, dtype=torch.float64)
    """
    return reliability_bins(scores, targets, num_bins).error
