"""SOPRC: AUPRC estimated with a class prior and a score vector."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mmrank.autograd import can_sync
from mmrank.distributed import all_reduce_sum, join
from mmrank.losses.base import RankingLoss, idle_share
from mmrank.losses.lists import RankedLists
from mmrank.losses.pairs import OneSidedHuber
from mmrank.losses.pairs_smooth import (
    OneSidedSigmoid,
    Surrogate,
    pairwise_surrogate_sum,
    sum_over_negatives,
)
from mmrank.losses.plain_lists import like_scores, split_lists
from mmrank.settings import check_count, check_not_negative, check_positive, one_of
from mmrank.state import ClassPrior, ScoreVector
from mmrank.state.class_counts import Counts
from mmrank.tensors import as_divisor, check_floats, clamp_infinite


def soprc_loss(
    scores: Tensor,
    is_positive: Tensor,
    v: Tensor,
    *,
    prior: Tensor | float | None,
    tau1: float,
    tau2: float,
    rank_gradient: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """SOPRC of each list, with the one-sided Huber surrogate.

    ``mean_i h((1-pi)/pi * mean_j l1(s_i - t_j) / r_i)`` with ``h(x) = x/(1 + x)`` and ``r_i = (1 +
    sum_v l2(s_i - v)) / (V + 1)``, which counts the positive itself and is never 0. Source: SOPRC
    (NeurIPS 2022), eq. 8.

    See :func:`split_lists` for the lists and :class:`mmrank.losses.SOPRCLoss` for other options.

    - ``v``: (V,) or (L, V) scores that represent all positives of the data set, finite, in any
      order; a constant of the gradient. ``v[labels]`` gives each query of a retrieval batch the
      vector of its class.
    - ``prior``: A number or (L,). None: n+/(n+ + n-) of each list, the biased estimator of average
      precision.

    Example:
        >>> scores = torch.tensor([0.9, 0.2, 0.3, -0.5])
        >>> v = interpolate_scores(scores[:2], 4, -1.0, 1.0)
        >>> soprc_loss(scores, torch.tensor([1, 1, 0, 0]), v, prior=0.5, tau1=0.1, tau2=0.001)
        tensor(0.3571)
    """
    check_positive(tau1=tau1, tau2=tau2)
    if prior is not None:
        values = torch.as_tensor(prior, device=None if isinstance(prior, Tensor) else 'cpu')
        if can_sync(values) and not ((values > 0) & (values < 1)).all():
            what = 'prior must be in (0, 1) or None (n+/(n+ + n-) of the list)'
            raise ValueError(f'{what}, got {values.tolist()!r:.80}')
    lists = split_lists(scores, is_positive, mask)
    losses, _ = soprc_terms(lists, v, prior, OneSidedHuber(tau1), tau2, rank_gradient)
    return like_scores(losses, scores)


def soprc_terms(
    lists: RankedLists,
    v: Tensor,
    prior: Tensor | float | None,
    surrogate: Surrogate,
    tau2: float,
    rank_gradient: bool = True,
    lone_points: int | None = None,
) -> tuple[Tensor, Tensor]:
    """SOPRC with any surrogate l1; see :func:`soprc_loss` for the parameters.

    ``lone_points``: Points that v counts as in a list of one positive; None: V.

    Returns:
        (L,) risks in [0, 1], and without gradient the mean argument of h of each list, float64.
    """
    pos = lists.pos
    mask = lists.pos_mask
    check_floats(v=v)
    size = len(pos)
    v = v.expand(size, -1) if v.dim() == 1 else v
    if v.dim() != 2 or len(v) != size:
        shape = tuple(v.shape)
        raise ValueError(f'v must be (length,) or ({size}, length) for {size} lists, got {shape}')
    total = sum_over_negatives(lists, surrogate)
    with torch.no_grad():
        num_pos = lists.num_positives()
        num_neg = lists.num_negatives()
        odds = num_neg / as_divisor(num_pos)  # of a negative
        if prior is not None:
            prior = torch.as_tensor(prior, dtype=torch.float64, device=num_pos.device).reshape(-1)
            if prior.numel() not in (1, num_pos.numel()):
                what = f'prior must be a number or ({num_pos.numel()},), one for each list'
                raise ValueError(f'{what}, got {prior.numel()} numbers')
            odds = ((1 - prior) / prior).expand_as(num_pos)
        scale = odds / as_divisor(num_neg)
    higher = pairwise_surrogate_sum(
        pos if rank_gradient else pos.detach(),
        v.detach(),
        OneSidedSigmoid(tau2),
        pos_mask=mask,
        on_host=lists.on_host,
    )
    length = v.size(1)
    points = torch.where(num_pos[:, None] > 1, length, lone_points or length)
    share = (1 + higher * (points / length)) / (points + 1)
    argument = scale[:, None] * total / share
    # x/(1 + x), in a form that is finite at inf.
    risk = lists.positives * torch.where(mask, -torch.expm1(-torch.log1p(argument)), 0)
    count = as_divisor(num_pos)
    with torch.no_grad():
        watched = torch.where(mask, lists.positives * argument, 0).sum(1) / count
    return risk.sum(1) / count, watched


def _semi_variance(lists: RankedLists, lam1: float, lam2: float, of_beyond: bool) -> Tensor:
    """(L,) float64 spread of scores on the wrong side of their mean, 0 without a positive.

    ``lam1/n+ sum_{s_i < mean+} (s_i - mean+)^2 + lam2/n- sum_{t_j > mean-} (t_j - mean-)^2``.
    Source: SOPRC (NeurIPS 2022), eq. 9; ``of_beyond`` divides by the scores beyond the mean.
    """
    spread = lists.pos.new_zeros(len(lists.pos), dtype=torch.float64)
    below = -lists.pos, lists.positives, None
    above = lists.scores, lists.negatives, lists.group
    for lam, side in ((lam1, below), (lam2, above)):
        if lam > 0:
            spread = spread + lam * _upper_semi_variance(*side, of_beyond)
    return torch.where(lists.has_positive, spread, 0)


def _upper_semi_variance(scores: Tensor, counts: Tensor, group, of_beyond: bool) -> Tensor:
    """(L,) sums of squares above the mean, over the number of all scores or of those beyond.

    ``counts`` are bool or float weights, how often each of (L, N) scores counts.
    """
    x = torch.where(counts > 0, clamp_infinite(scores.double()), 0)
    sums = torch.stack([counts.sum(1).double(), (counts * x).sum(1)])
    number, total = all_reduce_sum(sums, group)
    number = as_divisor(number)
    mean = total / number
    fixed = mean.detach()
    above = torch.where(counts > 0, (x - fixed[:, None]).clamp(min=0), 0)
    beyond = (counts * (above > 0)).sum(1).double()
    sums = torch.stack([(counts * above.square()).sum(1), (counts * above).sum(1), beyond])
    squares, total, beyond = all_reduce_sum(sums, group)
    # The mean moves with every score, also with those of other ranks.
    squares = squares - 2 * total.detach() * (mean - fixed)
    number = beyond if of_beyond else number
    return squares / as_divisor(number)


def _in_one_row(parts: Sequence[RankedLists]) -> RankedLists:
    """Positives and negatives of the lists that have a positive, as one list."""
    rows = []
    for lists in parts:
        counted = lists.is_negative & lists.has_positive[:, None]
        row = dict(pos=lists.pos, pos_mask=lists.pos_mask, scores=lists.scores, is_negative=counted)
        if lists.weight is not None or lists.list_weight is not None:
            row['pos_weight'] = lists.by_list(lists.positives)
            row['weight'] = lists.by_list(lists.negatives)
        rows.append(row)
    joined = {name: join([row[name].flatten() for row in rows])[None] for name in rows[0]}
    return replace(parts[0], **joined)


class SOPRCLoss(RankingLoss):
    """Area under the precision-recall curve with a class prior.

    :func:`mmrank.functional.soprc_loss` plus the semi-variance of the scores. The class prior pi
    instead of the batch's ratio makes the estimate independent of the sampling rate; v represents
    the positives of the whole data set. Source: Wen et al., Exploring the Algorithm-Dependent
    Generalization of AUPRC Optimization with List Stability, NeurIPS 2022, eq. 8 and 9.

    With ``mode='per_class'`` each class has a v of its own: of its column of the scores, or in
    retrieval of its queries. All ranks share v, also with ``scope='local'``. In a list of one
    positive v counts as one point. The defaults are for cosines. For logits widen ``tau1`` (1),
    ``tau2`` (0.01) and ``score_range`` (-5, 5). ``docs/pages/losses.md`` says why, and which prior.

    Args:
        num_classes: Number of classes C. Needed for a v or a prior per class.
        prior: Class prior pi: a number or one per class, in (0, 1); ``counts``: N_c/N, set by
            :meth:`set_class_counts`, which ``mmrank.ClassCountsHook`` calls; ``batch``: the ratio
            of each list in the batch (the biased estimator of the paper's ablation).
        max_prior: Scale the priors of the classes so that the largest is this; None leaves them.
        tau1: Margin of l1 in units of the (activated) scores, > 0.
        tau2: Temperature of l2 in units of the scores, > 0.
        use_vector: False takes the interpolated scores of the batch instead of v (the paper's
            ablation).
        vector_length: Number of points V of v.
        momentum: beta, weight of the new batch in v. The paper gives 0.001, its code 0.1 but for
            iNaturalist.
        lam1: Weight of the semi-variance of the positives, >= 0; 1 in the authors' code.
        lam2: Weight of the semi-variance of the negatives, >= 0; 5 in the authors' code.
        score_range: Range of the (activated) scores, which bounds the ends of phi; scores outside
            are allowed.
        semi_variance: ``per_list`` (eq. 9), or ``batch``: one mean over all lists, averaged over
            the scores beyond it, as in the authors' code.
    """

    takes_weights = True
    zero_without_positives = True
    cost = 'scores'
    saturation_advice = (
        'Raise prior (0.5 in a detector), or set max_prior where each class has its own prior'
    )

    def __init__(
        self,
        num_classes: int | None = None,
        mode: str = 'flatten',
        prior: float | Sequence[float] | str = 0.1,
        max_prior: float | None = None,
        tau1: float = 0.1,
        tau2: float = 0.001,
        use_vector: bool = True,
        vector_length: int = 100,
        momentum: float = 0.1,
        lam1: float = 0.0,
        lam2: float = 0.0,
        score_range: tuple[float, float] = (-1.0, 1.0),
        semi_variance: str = 'per_list',
        **kwargs,
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        one_of('semi_variance', semi_variance, ('per_list', 'batch'))
        size = self.state_size()
        check_not_negative(lam1=lam1, lam2=lam2)
        check_positive(tau1=tau1, tau2=tau2)
        check_count('vector_length', vector_length)
        self.surrogate = OneSidedHuber(tau1)
        self.tau2 = tau2
        self.lam1 = lam1
        self.lam2 = lam2
        self.per_batch = semi_variance == 'batch'
        self.prior = None
        if not isinstance(prior, str) or prior != 'batch':
            self.prior = ClassPrior(prior, num_classes, max_prior)
            if mode == 'flatten' and self.prior.prior.numel() > 1:
                raise ValueError(
                    "a prior per class requires mode='per_class'; mode='flatten' ranks all classes "
                    'in one list, which has one prior'
                )
        elif max_prior is not None:
            what = f"max_prior={max_prior!r} has no effect with prior='batch'"
            raise ValueError(f"{what}; use prior='counts' or remove it")
        vector_mode = 'ema' if use_vector else 'off'
        self.score_vector = ScoreVector(size, vector_length, momentum, score_range, vector_mode)

    @property
    def wants_class_counts(self) -> bool:
        return self.prior is not None and self.prior.from_counts

    def set_class_counts(self, counts: Counts, num_samples: int | None = None) -> None:
        prior = self.prior
        if prior is not None and not (prior.from_counts or prior.prior.numel() > 1):
            prior = None
        if self.has_auto_weights or prior is None:
            super().set_class_counts(counts, num_samples)
        if prior is not None:
            prior.set_counts(counts, num_samples)

    def part_losses(self, parts: Sequence[RankedLists]) -> Tensor:
        first = parts[0]
        v = self.score_vector.update(
            *((lists.pos, lists.positives) for lists in parts),
            rows=first.list_classes,
            group=first.state_group,
            list_weight=first.list_weight,
            on_host=first.on_host,
        )
        terms = []
        for lists, own in zip(parts, v.split([len(lists.pos) for lists in parts])):
            prior = None
            if self.prior is not None:
                prior = self.prior.of(len(lists.pos), lists.list_classes)
            # As in the authors' code. By a gradient through v it pays to push a low positive
            # further down, where more of v lies above it.
            options: dict = dict(rank_gradient=False, lone_points=1)
            terms.append(soprc_terms(lists, own, prior, self.surrogate, self.tau2, **options))
        losses, self.argument = (torch.cat(x) for x in zip(*terms))
        return losses

    def total(self, losses: Tensor, counted: Tensor, parts: Sequence[RankedLists]) -> Tensor:
        if self.per_batch:
            spread = _semi_variance(_in_one_row(parts), self.lam1, self.lam2, True)[0]
        else:
            spreads = [_semi_variance(lists, self.lam1, self.lam2, False) for lists in parts]
            spread = self.reduce_lists(torch.cat(spreads), counted)
        self.diagnostics['semi_variance'] = spread.detach()
        return self.reduce_lists(losses, counted) + spread

    def diagnose(self, losses, counted, parts) -> dict[str, Tensor]:
        return {
            'argument': self.reduce_lists(self.argument, counted),
            'idle': idle_share(self.argument, counted),
            'mean_positive': self.logit_centre().mean(),
        }

    def logit_centre(self) -> Tensor:
        """Mean of v as a raw score, (1,) or (C,): the mean positive score."""
        mean = self.score_vector.vector.mean(1)
        return mean.logit(1e-6) if self.activation == 'sigmoid' else mean
