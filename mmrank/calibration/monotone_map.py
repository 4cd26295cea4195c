"""Maps from score to probability that keep the order and the ties.

A map that rises in real numbers need not rise in floating point: where it is flat, or close to 0 or
1, different scores may become equal, and average precision changes. :func:`keep_order` undoes that
exactly.
"""

import torch
from torch import Tensor

#: float32 numbers in [0, 1] are 0 to 2^30 steps above 0.
_STEPS = 2.0**-30
#: Share of a score's place among them in its probability.
ORDER_SHARE = 2.0**-20


def keep_order(scores: Tensor, probabilities: Tensor) -> Tensor:
    r"""Make a rising map of float32 scores strictly rising.

    .. math:: f(s) = (1 - 2^{-20}) \, p(s) + 2^{-20} \, 2^{-30} \, r(s)

    where r(s) is the place of s among all float32 numbers from 0 to 1, an integer of at most
    :math:`2^{30}`, the bits of s. Different scores differ by at least :math:`2^{-50}` (eight times
    the spacing of float64 below 1) in the second term and do not fall in the first, so that their
    order and their ties are the scores' own, for every pair of float32 numbers. No probability
    moves by more than :math:`2^{-20}`, a millionth.

    Args:
        scores: Floats in [0, 1] of any shape, of at most 32 bits.
        probabilities: Float64 of the same shape: a function of the scores that does not fall by
            more than :math:`2^{-51}`, which rounding may make it do.

    Returns:
        Float64 in [0, 1] of the same shape. In float32 they may tie.

    Raises:
        TypeError: If the scores have 64 bits.
    """
    bits = _as_float32(scores).view(torch.int32)
    place = bits.double() * (_STEPS * ORDER_SHARE)
    return probabilities.double() * (1 - ORDER_SHARE) + place


def interpolated_map(scores: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation of (L, n) scores between (L, K) knots, constant outside; float64.

    With the ends of the blocks of an isotonic regression as knots it is the map of scikit-learn's
    ``IsotonicRegression``: Zadrozny and Elkan, "Transforming Classifier Scores into Accurate
    Multiclass Probability Estimates", KDD 2002, made strictly rising, see :func:`keep_order`.
    Neither knots nor values fall; the last one may repeat. Scores have at most 32 bits.
    """
    x = _as_float32(scores).double().contiguous()
    knots = knots.double().contiguous()
    values = values.double().contiguous()
    right = torch.searchsorted(knots, x, right=True)
    left = (right - 1).clamp(min=0)
    right = right.clamp(max=knots.size(1) - 1)
    x0 = knots.gather(1, left)
    x1 = knots.gather(1, right)
    y0 = values.gather(1, left)
    y1 = values.gather(1, right)
    width = x1 - x0
    slope = torch.where(width > 0, (y1 - y0) / width, 0.0)
    # Each step of the arithmetic rises with x, so that the result does.
    between = y0 + (x - x0).clamp(min=0) * slope
    return keep_order(scores, torch.minimum(between, y1))


def _as_float32(scores: Tensor) -> Tensor:
    if scores.dtype == torch.float64:
        raise TypeError(
            'scores must be floats of at most 32 bits, got float64, whose order 64 bits cannot '
            'keep; call scores.float() where that changes no score'
        )
    # Adding 0 turns -0.0, whose bits belong to no number in [0, 1].
    return scores.detach().float() + 0.0
