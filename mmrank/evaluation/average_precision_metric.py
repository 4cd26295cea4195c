"""AP and AUROC of one-vs-rest scores as a metric of an mmengine runner."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from tabulate import tabulate
from torch import Tensor

from mmrank.errors import UserError
from mmrank.functional import auroc, average_precision, ndcg, partial_auroc
from mmrank.metrics.retrieval.metrics import check_recall_at
from mmrank.models.heads.sample_fields import one_vs_rest_targets
from mmrank.registry import METRICS
from mmrank.settings import CheckedSettings, check_within

_HEADER = ('class', 'positives', 'negatives', 'AP', 'AUROC')


def class_figures(scores: Tensor, is_positive: Tensor, names: list[str]) -> tuple[Tensor, Tensor]:
    """AP and AUROC in [0, 1] of the named classes, (C,) each, of (n, C) scores and bools.

    NaN for a class without a positive or without a negative.
    """
    if scores.isnan().any():
        row, column = scores.isnan().nonzero()[0].tolist()
        what = f'the score of sample {row} for class {names[column]!r} is NaN'
        raise ValueError(f'{what}; did the training diverge?')
    # Ties of float32 scores stay ties.
    lists = scores.t().double()
    labels = is_positive.t()
    ap = torch.stack([average_precision(*x) for x in zip(lists, labels)])
    area = torch.stack([auroc(*x) for x in zip(lists, labels)])
    return ap.where(~area.isnan(), torch.nan), area


@METRICS.register_module()
class AveragePrecisionMetric(CheckedSettings, BaseMetric):
    """AP, mAP and AUROC of binary, one-vs-rest and multi-label scores.

    Equal to scikit-learn's ``average_precision_score`` and ``roc_auc_score``, ties included.
    Returned in percent:

    * ``mAP``, ``AUROC``: means over the classes (macro);
    * ``micro_AP``, ``micro_AUROC``: all scores of all classes in one ranking;
    * ``pAUROC``: mean over the classes of :func:`mmrank.functional.partial_auroc`, if ``max_fpr``
      is set; it is not in the table;
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
        ndcg_at: The k of NDCG@k.
        **kwargs: Of mmengine's ``BaseMetric``, such as ``prefix``.
    """

    default_prefix = 'ranking'

    def __init__(
        self,
        classwise: bool = False,
        skip_empty: bool = False,
        max_fpr: float = 1.0,
        ndcg_at: Sequence[int] = (),
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_within('(0, 1]', max_fpr=max_fpr)
        check_recall_at(ndcg_at, 'ndcg_at')
        self.classwise = classwise
        self.skip_empty = skip_empty
        self.max_fpr = max_fpr
        self.ndcg_at = tuple(ndcg_at)

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        """Keep ``pred_score`` and ``gt_label`` or ``gt_score`` of the samples of a batch."""
        if not data_samples:
            return
        if 'pred_score' not in data_samples[0]:
            what = 'a data sample has no pred_score; let the model set it in predict'
            raise KeyError(f"{what}, as type='mmrank.OneVsRestHead' does")
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
        scores = torch.from_numpy(scores)
        target = torch.from_numpy(target)
        size = scores.size(1)
        names = list((self.dataset_meta or {}).get('classes') or ())
        if size == 1 and len(names) == 2:
            names = names[1:]  # the rest, and the positive class
        if len(names) != size:
            names = [str(i) for i in range(size)]
        ap, area = class_figures(scores, target, names)
        known = ~ap.isnan()
        self._check([name for name, is_known in zip(names, known) if not is_known], len(names))
        # One ranking of all scores of the classes that have both.
        flat = (scores[:, known].flatten().double(), target[:, known].flatten())
        found = {
            'mAP': float(ap.nanmean()),
            'AUROC': float(area.nanmean()),
            'micro_AP': float(average_precision(*flat)),
            'micro_AUROC': float(auroc(*flat)),
        }
        positives = target.sum(0).tolist()
        rows = [
            [name, count, len(target) - count, 100 * float(x), 100 * float(y)]
            for name, count, x, y in zip(names, positives, ap, area)
        ]
        totals = [sum(positives), target.numel() - sum(positives)]
        rows.append(['macro', *totals, 100 * found['mAP'], 100 * found['AUROC']])
        rows.append(['micro', *totals, 100 * found['micro_AP'], 100 * found['micro_AUROC']])
        print_log('\n' + tabulate(rows, _HEADER, floatfmt='.2f'), logger='current')
        if len(names) == 1:
            found = {'AP': found['mAP'], 'AUROC': found['AUROC']}
        if self.max_fpr < 1:
            lists = zip(scores.t()[known].double(), target.t()[known])
            partial = [partial_auroc(*x, max_fpr=self.max_fpr) for x in lists]
            found['pAUROC'] = float(torch.stack(partial).mean())
        for k in self.ndcg_at:
            found[f'NDCG@{k}'] = float(ndcg(scores, target, k).nanmean())
        if self.classwise:
            for name, one_ap, one_area in zip(names, ap, area):
                found |= {f'AP/{name}': float(one_ap), f'AUROC/{name}': float(one_area)}
        return {name: 100 * value for name, value in found.items()}

    def _check(self, empty: list[str], number: int) -> None:
        """Refuse classes that have no positive or no negative, or name them."""
        if not empty:
            return
        shown = ', '.join(empty[:10]) + (', ...' if len(empty) > 10 else '')
        message = (
            f'{len(empty)} of {number} classes have no positive '
            f'or no negative in this split: {shown}'
        )
        if not self.skip_empty or len(empty) == number:
            raise UserError(
                f'{message}. Fix: evaluate on a split that has them, or set skip_empty=True of '
                'AveragePrecisionMetric to exclude such classes from the means'
            )
        print_log(f'{message}; the means exclude them', logger='current')
