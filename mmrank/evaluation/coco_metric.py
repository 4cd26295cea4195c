"""mmdet's CocoMetric by faster-coco-eval; needs mmdet to import."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from numbers import Real
from unittest.mock import patch

import mmdet.evaluation
import numpy as np
from mmengine.logging import print_log
from pycocotools.cocoeval import COCOeval
from tabulate import tabulate

from mmrank.errors import UserError
from mmrank.evaluation.coco_index import (
    are_plain_ids,
    fast_evaluator,
    number_objects,
    warn_of_equal_scores,
    warn_of_limit,
)
from mmrank.evaluation.operating_points import (
    FIGURES,
    Matches,
    figures_at,
    figures_of,
    matches_by_class,
    parse_figure,
    pool,
)

#: Detections of a class and an image that mAP counts.
_LIMIT = 100
_warn = partial(print_log, logger='current', level=30)


class CocoMetric(mmdet.evaluation.CocoMetric):
    """``mmdet.CocoMetric`` by faster-coco-eval where it is installed, 13 times as fast.

    The figures are mmdet's, but where they are wrong there: ids may be anything, ``classwise``
    takes ids in any order, ``iou_thrs`` need not be COCO's ten (mAP_50 is -1 without 0.5), and
    ``proposal_nums`` without 100 gives mAP of its largest number. Otherwise mAP counts 100
    detections of a class and an image. Images that were not predicted do not count.

    There is more, for ``save_best`` and early stopping, too: :mod:`operating points
    <mmrank.evaluation.operating_points>` as ``coco/recall@fp1`` and ``coco/f1`` with its
    ``coco/f1_threshold``, of all classes at one score; -1 without objects. With ``classwise`` each
    class has its own, as ``coco/cat_recall@fp1``. The names of masks begin with ``segm_``.

    Args:
        *args: Of ``mmdet.CocoMetric``.
        figures: Which of them, or one.
        figure_iou: Overlap from which a box finds an object there.
        thresholds: One score, or one for each class by its name, to report
            ``recall@threshold``, ``precision@``, ``f1@`` and ``false_alarms@threshold`` at.
        **kwargs: Of ``mmdet.CocoMetric``, such as ``ann_file``, ``classwise``, ``outfile_prefix``.
    """

    def __init__(
        self,
        *args,
        figures: str | Sequence[str] = FIGURES,
        figure_iou: float = 0.5,
        thresholds: float | Mapping[str, float] | None = None,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        figures = [figures] if isinstance(figures, str) else [*figures]
        self.figures = figures
        self.figure_iou = figure_iou
        self.thresholds = thresholds
        kinds = [parse_figure(figure)[0] for figure in figures]
        #: What is reported beside mmdet's figures and those at ``thresholds``.
        self.figure_names = [*figures, *['f1_threshold'] * kinds.count('f1')]
        self.iou_thrs = np.unique(np.asarray(self.iou_thrs, dtype=float))
        ious = np.append(self.iou_thrs, figure_iou)
        if not ((ious > 0) & (ious <= 1)).all():
            wrong = f'iou_thrs={self.iou_thrs.tolist()}, figure_iou={figure_iou}'
            raise UserError(f'{wrong} are not all in (0, 1]', '0.5 for 50 %')
        scores = thresholds.values() if isinstance(thresholds, Mapping) else [thresholds or 0.0]
        if not all(isinstance(x, Real) and (0 <= x <= 1 or x == np.inf) for x in scores):
            what = f'thresholds={thresholds!r:.80} are not scores in [0, 1], or inf for none'
            raise UserError(what, 'thresholds=0.5, or dict(cat=0.5, dog=0.4) by class')
        if self._coco_api is not None:
            number_objects(self._coco_api.dataset)
            self._coco_api.createIndex()
            warn_of_limit(self._coco_api.dataset, _limit_of(self.proposal_nums))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Figures by name, in [0, 1], of the results of all ranks."""
        evaluation = fast_evaluator()
        predicted = [found for _, found in results]
        if self._coco_api is not None:
            self._keep_predicted({found['img_id'] for found in predicted})
            self._drop_other_classes(predicted)
            if not are_plain_ids(self._coco_api.dataset):
                evaluation = COCOeval  # which takes texts
        pairs = (zip(x['labels'].tolist(), x['scores'].tolist()) for x in predicted)
        warn_of_equal_scores(chain.from_iterable(pairs))
        done: list = []
        evaluation = type(evaluation.__name__, (_LimitedMeanAP, evaluation), dict(done=done))
        # mmdet looks its evaluators up in its module, and names classes in the order of the file.
        module = mmdet.evaluation.CocoMetric.__module__
        with (
            patch(f'{module}.COCOeval', evaluation),
            patch(f'{module}.COCOevalMP', evaluation),
            patch.object(self, 'classwise', False),
        ):
            figures = super().compute_metrics(results)
        for one in done:
            if one.params.useCats:
                figures.update(self._more_figures(one))
        return figures

    def _keep_predicted(self, predicted: set) -> None:
        """Leave out images of the file that the data set does not have."""
        every = self._coco_api.get_img_ids()
        self.img_ids = [x for x in every if x in predicted]
        if 0 < len(self.img_ids) < len(every):
            _warn(f'Only the {len(self.img_ids)} predicted of {len(every)} images count.')

    def _drop_other_classes(self, predicted: list[dict]) -> None:
        """Leave out boxes of the classes of the model that the data set does not have."""
        number = len(self.dataset_meta['classes'])
        dropped = 0
        for found in predicted:
            kept = np.flatnonzero(found['labels'] < number)
            dropped += len(found['labels']) - len(kept)
            for key in found.keys() - {'img_id'}:
                is_list = isinstance(found[key], list)
                found[key] = [found[key][i] for i in kept] if is_list else found[key][kept]
        if dropped:
            _warn(f'{dropped} boxes of classes beyond the {number} of the data set are left out.')

    def _more_figures(self, evaluation) -> dict[str, float]:
        """Operating points; with ``classwise`` AP and these by class, and a table in the log."""
        prefix = '' if evaluation.params.iouType == 'bbox' else f'{evaluation.params.iouType}_'
        parts = []
        for cat_id, matches in matches_by_class(evaluation, self.figure_iou).items():
            name = self._coco_api.cats[cat_id]['name']
            parts.append((name, matches, self._threshold(name)))
        points = self._operating_points(parts)
        figures = {f'{prefix}{key}': -1 if np.isnan(x) else x for key, x in points.items()}
        if not self.classwise:
            return figures
        thresholds = evaluation.params.iouThrs
        rows = []
        for index, part in enumerate(parts):
            name, matches, _ = part
            # By thresholds, recalls and areas.
            precision = evaluation.eval['precision'][:, :, index, :, -1]
            kinds = [precision[..., 0]]
            kinds += [precision[thresholds == x, :, 0] for x in (0.5, 0.75)]
            kinds += [precision[..., area] for area in (1, 2, 3)]
            means = [round(_mean(kind, np.nan), 3) for kind in kinds]
            points = self._operating_points([part])
            rows.append([name, matches.num_objects, *means, *points.values()])
            figures[f'{name}_precision'] = means[0]
            figures[f'{prefix}{name}_mAP_50'] = means[1]
            figures.update({f'{prefix}{name}_{key}': x for key, x in points.items()})
        heads = ('category', 'objects', 'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
        print_log('\n' + tabulate(rows, (*heads, *points), floatfmt='.3g'), logger='current')
        return figures

    def _threshold(self, name: str) -> float | None:
        if not isinstance(self.thresholds, Mapping):
            return self.thresholds
        if name not in self.thresholds:
            what = f'thresholds has no class {name!r}, but {", ".join(self.thresholds)}'
            raise UserError(what, 'a score for each class of the data set')
        return self.thresholds[name]

    def _operating_points(self, parts: list[tuple[str, Matches, float | None]]) -> dict[str, float]:
        """Figures of some classes together."""
        matches = pool([x for _, x, _ in parts])
        points = figures_of(matches, self.figures)
        found = {figure: value for figure, (value, _) in points.items()}
        if 'f1' in points:
            found['f1_threshold'] = points['f1'][1]
        if self.thresholds is not None:
            at = figures_at([part[1:] for part in parts])
            found.update({f'{key}@threshold': x for key, x in at.items()})
        return found


class _LimitedMeanAP:
    """Mixin of an evaluation whose mAP counts as many detections as pycocotools' does."""

    def summarize(self) -> None:
        """Compute ``stats``."""
        super().summarize()
        counted = list(self.params.maxDets)
        precision = self.eval['precision'][:, :, :, 0, counted.index(_limit_of(counted))]
        self.stats[0] = _mean(precision, -1)
        self.done.append(self)


def _mean(values: np.ndarray, none: float) -> float:
    """Mean of what is known; ``none`` if nothing is."""
    known = values[values > -1]
    return known.mean() if known.size else none


def _limit_of(counted: Sequence[int]) -> int:
    return _LIMIT if _LIMIT in counted else max(counted)
