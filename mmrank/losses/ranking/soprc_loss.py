"""SOPRC as a registered loss."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.functional.ranking.semi_variance import batch_semi_variance, semi_variance
from mmrank.functional.ranking.soprc import soprc_terms
from mmrank.losses.inputs import one_of
from mmrank.losses.pairs.surrogates import OneSidedHuber, OneSidedSigmoid
from mmrank.state import ClassPrior, ScoreVector

from .ranking_loss import RankedLists, RankingLoss


class SOPRCLoss(RankingLoss):
    """Area under the precision-recall curve with a class prior.

    ``mean_i h((1-pi)/pi * mean_j l1(s_i - t_j) / E_v[l2(s_i - v)])`` with ``h(x) = x/(1 + x)``,
    plus a semi-variance regulariser. The class prior pi instead of the batch's ratio makes the
    estimate independent of the
    sampling rate; v represents the positives of the whole data set. Source: Wen et al., Exploring
    the Algorithm-Dependent Generalization of AUPRC Optimization with List Stability, NeurIPS 2022,
    eq. 8 and 9.

    **Classification and detection** call the loss itself: one ranking of all scores (``flatten``)
    or one per class (``per_class``), whose rows of v are the classes.

    **Retrieval** calls :meth:`embedding_loss`, every image of the batch a query, as
    :class:`mmrank.models.heads.RetrievalHead` does. With ``num_classes=C, mode='per_class'`` there
    is one v for the queries of a class. By hand, in one process::

        loss.embedding_loss(EmbeddingBatch.of_one_batch(embeddings, labels))

    In distributed training with ``scope='global'`` every rank passes the queries of all ranks
    against its own images; with ``scope='local'`` its
    own queries alone: v is shared either way.

    **Units.** The defaults are for cosines. For logits widen ``tau1`` (1), ``tau2`` (0.01) and
    ``score_range`` (-5, 5).

    **Prior.** h saturates: with the prior of a rare class, or of the anchors of a detector, the
    argument is 10^3 and nothing is learnt. The authors scale the priors of the classes so that the
    largest is 0.1 (``max_prior``); in a detector start from ``prior=0.5``. Watch ``argument`` in
    the log.

    Args:
        num_classes: Number of classes C. Needed for a v or a prior per class.
        mode: ``flatten``: all classes in one ranking. ``per_class``: one ranking per class (or
            query), with a v for each class.
        prior: Class prior pi: a number or one per class, in (0, 1);
            ``counts``: N_c/N, set by :meth:`set_class_counts`, which ``mmrank.ClassCountsHook``
            calls; ``batch``:
            the ratio of each list in the batch (the biased estimator of the paper's ablation).
        max_prior: Scale the priors of the classes so that the largest is
            this; None leaves them.
        tau1: Margin of l1 in units of the (activated) scores, > 0.
        tau2: Temperature of l2 in units of the scores, > 0.
        use_vector: False takes the interpolated scores of the batch instead
            of v (the paper's ablation).
        vector_scope: ``global``: one v; ``per_class``: one per class. None: according to ``mode``.
        vector_length: Number of points V of v.
        momentum: beta, weight of the new batch in v. The paper gives 0.001. Its code has 0.1 for
            Stanford Online Products and VehicleID, our default, and 0.001 for iNaturalist: a class
            is seen seldom, so small steps leave v where the first batches were.
        rank_gradient: True lets the gradient of eq. 8 go through
            ``E_v[l2]`` too. It then pays to push a low positive further
            down, where more of v lies above it: in a retrieval of 8 classes (16-d embeddings, 300
            steps) 3 of 5 seeds got stuck at 0.64 to
            0.92 mAP, and none without it. Off, as in the authors' code.
        lam1: Weight of the semi-variance of the positives, >= 0. The paper prints no value; its
            code has 1.
        lam2: Weight of the semi-variance of the negatives, >= 0; 5 in the authors' code.
        score_range: Range of the (activated) scores, which bounds the ends that are extrapolated;
            scores outside are allowed.
        semi_variance: ``per_list``: each list has means of its own, and eq. 9 divides by all of its
            scores. ``batch``: one mean over all lists, averaged over the scores beyond it, as in
            the authors' code, whose lam1 and lam2 are meant for it; ``reduction`` does not apply.
        **kwargs: ``reduction``, ``activation``, ``scope``, ``loss_weight``
            and ``use_sigmoid`` of
            :class:`mmrank.losses.RankingLoss`.

    Raises:
        ValueError: On a parameter out of range.
    """

    ignores_empty_lists = True
    saturation_advice = (
        'Raise prior (0.5 in a detector), or set max_prior where the priors '
        'are those of the classes'
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
        vector_scope: str | None = None,
        vector_length: int = 100,
        momentum: float = 0.1,
        rank_gradient: bool = False,
        lam1: float = 0.0,
        lam2: float = 0.0,
        score_range: tuple[float, float] = (-1.0, 1.0),
        semi_variance: str = 'per_list',
        **kwargs,
    ) -> None:
        super().__init__(num_classes=num_classes, mode=mode, **kwargs)
        one_of('semi_variance', semi_variance, ('per_list', 'batch'))
        self.semi_variance = semi_variance
        vector_scope = vector_scope or ('global' if mode == 'flatten' else 'per_class')
        one_of('vector_scope', vector_scope, ('global', 'per_class'))
        if vector_scope == 'per_class' and mode == 'flatten':
            raise ValueError("vector_scope='per_class' needs mode='per_class'")
        if vector_scope == 'per_class' and num_classes is None:
            raise ValueError(
                "vector_scope='per_class' requires num_classes: set it to the "
                'number of classes of the training set'
            )
        for name, lam in (('lam1', lam1), ('lam2', lam2)):
            if not lam >= 0:
                raise ValueError(f'{name} must be >= 0, got {lam!r}')
        self.surrogate = OneSidedHuber(tau1)
        self.tau2 = OneSidedSigmoid(tau2).tau
        self.rank_gradient, self.lam1, self.lam2 = rank_gradient, lam1, lam2
        self.prior = None
        if not (isinstance(prior, str) and prior == 'batch'):
            self.prior = ClassPrior(prior, num_classes, max_prior)
            if mode == 'flatten' and self.prior.prior.numel() > 1:
                raise ValueError(
                    "a prior per class requires mode='per_class'; "
                    "mode='flatten' ranks all classes in one list, which has "
                    'one prior'
                )
        elif max_prior is not None:
            raise ValueError(
                f"max_prior={max_prior!r} has no effect with prior='batch'; "
                "use prior='counts' or remove it"
            )
        self.score_vector = ScoreVector(
            num_classes if vector_scope == 'per_class' else 1,
            vector_length,
            momentum,
            score_range,
            'ema' if use_vector else 'off',
        )

    @property
    def wants_class_counts(self) -> bool:
        """Whether the priors are to be those of the training set."""
        return self.prior is not None and self.prior.from_counts

    def set_class_counts(
        self, counts: Sequence[int] | Tensor, num_samples: int | None = None
    ) -> None:
        """Take the class priors from the training set.

        Args:
            counts: (C,) number of samples of each class.
            num_samples: Number of samples. None: the sum of the counts.

        Raises:
            ValueError: If the loss has no priors of classes, or the counts do not fit.
        """
        if self.prior is None or not (self.prior.from_counts or self.prior.prior.numel() > 1):
            raise ValueError(
                "class counts require prior='counts' (or one prior per class) and num_classes"
            )
        self.prior.set_counts(counts, num_samples)

    def list_losses(self, lists: RankedLists) -> Tensor:
        """SOPRC of the lists and the semi-variance regulariser."""
        pos, pos_mask = lists.pos, lists.pos_mask
        rows = lists.list_classes
        if rows is not None and self.score_vector.vector.size(0) == 1:
            rows = torch.zeros_like(rows)
        v = self.score_vector.update(pos, pos_mask, rows, lists.state_group)
        prior = None
        if self.prior is not None:
            prior = self.prior.of(pos.size(0), lists.list_classes)
        terms = soprc_terms(
            pos,
            lists.scores,
            v,
            prior=prior,
            surrogate=self.surrogate,
            tau2=self.tau2,
            pos_mask=pos_mask,
            neg_mask=lists.neg_mask,
            rank_gradient=self.rank_gradient,
            group=lists.group,
        )
        risk = self.reduce_lists(terms.loss, terms.has_positive)
        spread = self._spread(lists, terms.has_positive)
        self.diagnostics = {
            'argument': self.reduce_lists(terms.argument, terms.has_positive).detach(),
            'mean_positive': self.logit_centre().mean(),
            'semi_variance': spread.detach(),
            'num_positive': pos_mask.sum(),
        }
        loss = risk + spread
        return loss.to(torch.promote_types(pos.dtype, torch.float32))

    def _spread(self, lists: RankedLists, has_positive: Tensor) -> Tensor:
        in_batch = self.semi_variance == 'batch'
        spread = (batch_semi_variance if in_batch else semi_variance)(
            lists.pos,
            lists.scores,
            lam1=self.lam1,
            lam2=self.lam2,
            pos_mask=lists.pos_mask,
            neg_mask=lists.neg_mask,
            group=lists.group,
        )
        return spread if in_batch else self.reduce_lists(spread, has_positive)

    def logit_centre(self) -> Tensor:
        """Mean of v as a raw score, (1,) or (C,): the mean positive score."""
        mean = self.score_vector.vector.mean(1)
        return mean.logit(1e-6) if self.activation == 'sigmoid' else mean

    @torch.no_grad()
    def shift_logits(self, offset: Tensor) -> None:
        """Move v with the raw scores, each row by one number.

        With a sigmoid a row moves as its mean does, and keeps its spread.

        Args:
            offset: (1,) or (C,), what is added to the raw scores.
        """
        v = self.score_vector.vector
        mean = v.mean(1)
        v.add_((self._shifted(mean, offset) - mean)[:, None])
