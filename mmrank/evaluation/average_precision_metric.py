"""AP and AUROC of one-vs-rest scores as a metric of an mmengine runner."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmrank.evaluation.class_scores import ClassFigures, class_figures
from mmrank.models.heads.sample_fields import one_vs_rest_targets
from mmrank.registry import METRICS


@METRICS.register_module()
class AveragePrecisionMetric(BaseMetric):
    """AP, mAP and AUROC of binary, one-vs-rest and multi-label scores.

    Equal to scikit-learn's ``average_precision_score`` and
    ``roc_auc_score``, ties included. Returned in percent:

    * ``mAP``, ``AUROC``: means over the classes (macro);
    * ``micro_AP``, ``micro_AUROC``: all scores of all classes in one ranking;
    * ``AP/<class>``, ``AUROC/<class>`` with ``classwise=True``.

    The table by class goes to the log, and to ``<out_stem>.md`` and
    ``.csv``. With one class macro and micro are the same, and only ``AP`` and ``AUROC`` are
    returned.

    Every process keeps its samples; the first one gathers them.

    Args:
        classwise: Return the figures of every class.
        skip_empty: Leave classes without a positive or a negative out of the means, and name them
            in the log. False: raise an error.
        out_stem: Path without suffix of the table's files. None: none.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.

    Example:
        >>> val_evaluator = dict(type='mmrank.AveragePrecisionMetric')
    """

    default_prefix = 'ranking'

    def __init__(
        self,
        classwise: bool = False,
        skip_empty: bool = False,
        out_stem: str | None = None,
        collect_device: str = 'cpu',
        prefix: str | None = None,
        collect_dir: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix, collect_dir)
        self.classwise, self.skip_empty = classwise, skip_empty
        self.out_stem = out_stem

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        """Keep scores and labels of a batch.

        Args:
            data_batch: Not used.
            data_samples: Data samples as dicts, with ``pred_score`` and ``gt_label`` or
                ``gt_score``.

        Raises:
            KeyError: If there is no ``pred_score``.
            ValueError: If the labels do not fit, see
                :func:`mmrank.models.heads.sample_fields.one_vs_rest_targets`.
        """
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
        """Compute the figures of the samples of all ranks.

        Args:
            results: What ``process`` kept.

        Returns:
            The figures in percent, see the class.

        Raises:
            ValueError: If there is no sample, a score is NaN, or a class has no positive or no
                negative.
        """
        if not results:
            raise ValueError('AveragePrecisionMetric got no sample; is the data set empty?')
        scores, target = map(np.stack, zip(*results))
        figures = class_figures(
            torch.from_numpy(scores), torch.from_numpy(target), self._names(scores.shape[1])
        )
        self._check(figures)
        print_log('\n' + figures.console_table(), logger='current')
        if self.out_stem is not None:
            figures.write(self.out_stem)
        return self._returned(figures)

    def _returned(self, figures: ClassFigures) -> dict[str, float]:
        if len(figures.names) == 1:
            found = {'AP': figures.mean_ap, 'AUROC': figures.mean_auroc}
        else:
            found = {
                'mAP': figures.mean_ap,
                'micro_AP': figures.micro_ap,
                'AUROC': figures.mean_auroc,
                'micro_AUROC': figures.micro_auroc,
            }
        if self.classwise:
            for name, ap, area in zip(figures.names, figures.ap, figures.auroc):
                found[f'AP/{name}'] = float(ap)
                found[f'AUROC/{name}'] = float(area)
        return {name: 100 * value for name, value in found.items()}

    def _check(self, figures: ClassFigures) -> None:
        empty = figures.empty_classes()
        if not empty:
            return
        shown = ', '.join(empty[:10]) + (', ...' if len(empty) > 10 else '')
        said = (
            f'{len(empty)} of {len(figures.names)} classes have no positive '
            f'or no negative in this split: {shown}'
        )
        if not self.skip_empty or len(empty) == len(figures.names):
            raise ValueError(
                f'{said}. Fix: evaluate on a split that has them, or set skip_empty=True of '
                'AveragePrecisionMetric to exclude such classes from the means'
            )
        print_log(f'{said}; the means exclude them', logger='current')

    def _names(self, size: int) -> list[str]:
        names = list((self.dataset_meta or {}).get('classes') or ())
        if size == 1 and len(names) == 2:
            names = names[1:]  # the rest, and the positive class
        if len(names) != size:
            names = [str(i) for i in range(size)]
        return names
