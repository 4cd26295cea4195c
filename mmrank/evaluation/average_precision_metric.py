"""AP and AUROC of one-vs-rest scores as a metric of an mmengine runner."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from tabulate import tabulate
from torch import Tensor

from mmrank.errors import UserError
from mmrank.functional import auroc, average_precision, ndcg, partial_auroc
from mmrank.models.heads.sample_fields import one_vs_rest_targets
from mmrank.registry import METRICS

_HEADER = ('class', 'positives', 'negatives', 'AP', 'AUROC')


@dataclass(frozen=True)
class _ClassFigures:
    """Figures in [0, 1] of C classes, (C,), NaN where there is no positive or no negative.

    The micro figures are of one ranking of all scores of the classes that have both.
    """

    names: list[str]
    positives: Tensor
    negatives: Tensor
    ap: Tensor
    auroc: Tensor
    micro_ap: float
    micro_auroc: float
    partial: Tensor | None = None  # (C,) partial AUROC, where it was asked for

    def table(self) -> list[list]:
        """A row for each class and the means below, figures in percent."""
        rows = []
        for i, name in enumerate(self.names):
            counts = [int(self.positives[i]), int(self.negatives[i])]
            rows.append([name, *counts, 100 * float(self.ap[i]), 100 * float(self.auroc[i])])
        totals = [int(self.positives.sum()), int(self.negatives.sum())]
        macro = [100 * float(x.nanmean()) for x in (self.ap, self.auroc)]
        rows.append(['macro', *totals, *macro])
        rows.append(['micro', *totals, 100 * self.micro_ap, 100 * self.micro_auroc])
        return rows


def class_figures(
    scores: Tensor,
    is_positive: Tensor,
    names: list[str],
    max_fpr: float = 1.0,
    min_tpr: float = 0.0,
) -> _ClassFigures:
    """Figures of (n, C) scores and bools, the samples ranked once for each of C named classes."""
    if scores.isnan().any():
        row, column = scores.isnan().nonzero()[0].tolist()
        raise ValueError(
            f'the score of sample {row} for class {names[column]!r} is NaN; '
            'did the training diverge?'
        )
    # Ties of float32 scores stay ties.
    scores = scores.double()
    positives = is_positive.sum(0)
    negatives = len(is_positive) - positives
    whole = (positives > 0) & (negatives > 0)
    is_partial = max_fpr < 1 or min_tpr > 0
    ap, area, part = scores.new_full((3, len(names)), torch.nan)
    for i in whole.nonzero().flatten().tolist():
        own = scores[:, i], is_positive[:, i]
        ap[i] = average_precision(*own)
        area[i] = auroc(*own)
        if is_partial:
            part[i] = partial_auroc(*own, max_fpr=max_fpr, min_tpr=min_tpr)
    flat = scores[:, whole].flatten(), is_positive[:, whole].flatten()
    return _ClassFigures(
        names=names,
        positives=positives,
        negatives=negatives,
        ap=ap,
        auroc=area,
        micro_ap=float(average_precision(*flat)),
        micro_auroc=float(auroc(*flat)),
        partial=part if is_partial else None,
    )


@METRICS.register_module()
class AveragePrecisionMetric(BaseMetric):
    """AP, mAP and AUROC of binary, one-vs-rest and multi-label scores.

    Equal to scikit-learn's ``average_precision_score`` and ``roc_auc_score``, ties included.
    Returned in percent:

    * ``mAP``, ``AUROC``: means over the classes (macro);
    * ``micro_AP``, ``micro_AUROC``: all scores of all classes in one ranking;
    * ``pAUROC``: mean over the classes of :func:`mmrank.functional.partial_auroc`, if
      ``max_fpr`` or ``min_tpr`` is set; it is not in the table;
    * ``NDCG@<k>``: mean over the samples with a label of the NDCG of their classes, for each k of
      ``ndcg_at``;
    * ``AP/<class>``, ``AUROC/<class>`` with ``classwise=True``.

    The table by class goes to the log. With one class macro and micro are the same, and only ``AP``
    and ``AUROC`` are returned. Every process keeps its samples; the first one gathers them.

    Args:
        classwise: Return the figures of every class.
        skip_empty: Leave classes without a positive or a negative out of the means, and name them
            in the log. False: raise an error.
        max_fpr: Highest false positive rate of the partial AUROC, in (0, 1].
        min_tpr: Its least true positive rate, in [0, 1).
        ndcg_at: The k of NDCG@k.
        **kwargs: Of mmengine's ``BaseMetric``, such as ``prefix``.
    """

    default_prefix = 'ranking'

    def __init__(
        self,
        classwise: bool = False,
        skip_empty: bool = False,
        max_fpr: float = 1.0,
        min_tpr: float = 0.0,
        ndcg_at: Sequence[int] = (),
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.classwise, self.skip_empty = classwise, skip_empty
        self.rates, self.ndcg_at = dict(max_fpr=max_fpr, min_tpr=min_tpr), tuple(ndcg_at)
        # Before the training, not after its first epoch.
        partial_auroc(torch.zeros(2), torch.tensor([0, 1]), **self.rates)

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        """Keep ``pred_score`` and ``gt_label`` or ``gt_score`` of the samples of a batch."""
        if not data_samples:
            return
        if 'pred_score' not in data_samples[0]:
            raise KeyError(
                'a data sample has no pred_score; let the model set it in '
                "predict, as type='mmrank.OneVsRestHead' does"
            )
        scores = torch.stack([x['pred_score'] for x in data_samples])
        # Calibrated scores have 64 bits, which in 32 would tie.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores = scores.detach().cpu()
        target = one_vs_rest_targets(data_samples, scores.size(1), torch.device('cpu'))
        # As arrays a row is sent to other ranks without its whole batch.
        self.results.extend((row, label > 0) for row, label in zip(scores.numpy(), target.numpy()))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Figures of the samples of all ranks, in percent; see the class."""
        if not results:
            raise ValueError('AveragePrecisionMetric got no sample; is the data set empty?')
        scores, target = map(np.stack, zip(*results))
        figures = class_figures(
            torch.from_numpy(scores),
            torch.from_numpy(target),
            self._names(scores.shape[1]),
            **self.rates,
        )
        self._check(figures)
        print_log('\n' + tabulate(figures.table(), _HEADER, floatfmt='.2f'), logger='current')
        # Means over the classes that have positives and negatives.
        found = {'mAP': float(figures.ap.nanmean()), 'AUROC': float(figures.auroc.nanmean())}
        if len(figures.names) == 1:
            found = {'AP': found['mAP'], 'AUROC': found['AUROC']}
        else:
            found |= {'micro_AP': figures.micro_ap, 'micro_AUROC': figures.micro_auroc}
        if figures.partial is not None:
            found['pAUROC'] = float(figures.partial.nanmean())
        for k in self.ndcg_at:
            of_samples = ndcg(torch.from_numpy(scores), torch.from_numpy(target), k)
            found[f'NDCG@{k}'] = float(of_samples.nanmean())
        if self.classwise:
            for name, ap, area in zip(figures.names, figures.ap, figures.auroc):
                found |= {f'AP/{name}': float(ap), f'AUROC/{name}': float(area)}
        return {name: 100 * value for name, value in found.items()}

    def _check(self, figures: _ClassFigures) -> None:
        empty = [name for name, ap in zip(figures.names, figures.ap) if ap.isnan()]
        if not empty:
            return
        shown = ', '.join(empty[:10]) + (', ...' if len(empty) > 10 else '')
        message = (
            f'{len(empty)} of {len(figures.names)} classes have no positive '
            f'or no negative in this split: {shown}'
        )
        if not self.skip_empty or len(empty) == len(figures.names):
            raise UserError(
                f'{message}. Fix: evaluate on a split that has them, or set skip_empty=True of '
                'AveragePrecisionMetric to exclude such classes from the means'
            )
        print_log(f'{message}; the means exclude them', logger='current')

    def _names(self, size: int) -> list[str]:
        names = list((self.dataset_meta or {}).get('classes') or ())
        if size == 1 and len(names) == 2:
            names = names[1:]  # the rest, and the positive class
        return names if len(names) == size else [str(i) for i in range(size)]
