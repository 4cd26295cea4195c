"""Exact retrieval figures as a metric of an mmengine runner."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from mmrank.errors import UserError
from mmrank.evaluation.feature_metric import FeatureMetric
from mmrank.evaluation.retrieval_features import RetrievalFeatures, save_features
from mmrank.functional import level_metrics, retrieval_metrics
from mmrank.metrics.retrieval.metrics import check_recall_at
from mmrank.registry import METRICS

_COUNTS = ('queries', 'queries_without_positive')


@METRICS.register_module()
class RetrievalMetric(FeatureMetric):
    """mAP, R-Precision, MAP@R and Recall@K of embeddings, in percent.

    Every sample searches all others, itself left out, for samples of its class; with
    ``gallery_key`` queries and gallery are separate sets. The definitions, also for ties, are as in
    ``mmrank.functional.retrieval_metrics``, which never holds the matrix of all scores. Samples
    without a positive are left out of the means and counted in ``queries_without_positive``.

    Several processes share the work: each ranks its part of the queries, and all return the figures
    of a single process.

    Where ``gt_label`` has several levels, from coarse to fine, the figures above are of the finest,
    and ``H_AP`` and ``NDCG@K`` with the K of ``recall_at`` are added, see
    ``mmrank.functional.level_metrics``; each process computes them.

    Args:
        gallery_key: Field or meta key with a bool: True puts the sample into the gallery, False
            among the queries. None: both.
        query_key: Field or meta key with a bool: True lets the sample search, whether it is in the
            gallery or not; it does not find itself. None: what is not in the gallery searches.
        leave_out: Field or meta key with an integer: a query does not find samples of its class
            that have its value, which are neither positives nor negatives. The camera
            gives the protocol of re-identification (Zheng et al., Scalable Person
            Re-identification, ICCV 2015), the sequence the one of tracks. None: only itself.
        recall_at: The K of Recall@K.
        multi_label: ``gt_label`` holds the indices of all classes of a sample, or zeros and ones
            for each class as floats or bools: what shares a class is a positive. False: one class,
            or levels from coarse to fine.
        out_file: ``.npz`` file for embeddings, labels and image paths, which
            ``mmrank draw retrieval`` reads. None: none. A path is ``img_path``
            of a sample; where one has none, no paths are written.
        **kwargs: See :class:`mmrank.evaluation.feature_metric.FeatureMetric`.
    """

    default_prefix = 'retrieval'

    def __init__(
        self,
        gallery_key: str | None = None,
        query_key: str | None = None,
        leave_out: str | None = None,
        recall_at: Sequence[int] = (1, 10, 100, 1000),
        multi_label: bool = False,
        out_file: str | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_recall_at(recall_at)
        if out_file is not None and (query_key or leave_out or multi_label):
            what = 'out_file does not hold what query_key, leave_out and multi_label ask for'
            raise UserError(what, 'leave out_file out, or these')
        if out_file is not None and not str(out_file).endswith('.npz'):
            raise ValueError(f'out_file must end in .npz, got {out_file!r}')
        self.gallery_key = gallery_key
        self.query_key = query_key
        self.leave_out = leave_out
        self.recall_at = tuple(recall_at)
        self.multi_label = multi_label
        self.out_file = out_file

    def join(self, results: list) -> RetrievalFeatures:
        """Samples of the results of all ranks; written to ``out_file``."""
        if self.multi_label and results:
            classes = 2 + max(max(x['labels'], default=0) for _, x in results)
            for _, described in results:
                own = described['labels']
                described['labels'] = [float(c in own) for c in range(classes)]
        samples = super().join(results)
        if samples.labels.dim() == 2 and not self.multi_label:
            samples = replace(samples, labels=samples.labels[:, -1], levels=samples.labels)
        if self.out_file is not None:
            save_features(samples, self.out_file)
        return samples

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
        """mAP, R_precision, MAP_at_R and recall@K in percent, and counts; see the class."""
        found = retrieval_metrics(
            *samples.sets(), group=group, leave_out=samples.left_out()
        ).summary(self.recall_at)
        if samples.levels is not None:
            sets = replace(samples, labels=cast(Tensor, samples.levels)).sets()
            levels = level_metrics(*sets, ndcg_at=self.recall_at)
            found['H_AP'] = levels.hap.nanmean().item()
            for k, ndcg in zip(self.recall_at, levels.ndcg.unbind(1)):
                found[f'NDCG@{k}'] = ndcg.nanmean().item()
        return {name: x if name in _COUNTS else 100 * x for name, x in found.items()}

    def label(self, sample: dict) -> int | list[int]:
        """Class index of a sample, or the indices of several levels or classes."""
        value = self.label_field(sample)
        if self.multi_label:
            if value.is_floating_point() or value.dtype == torch.bool:
                if ((value != 0) & (value != 1)).any():
                    what = f'field {self.label_key!r} must hold class indices, or zeros and ones'
                    raise UserError(f'{what}, got {value.tolist()}', 'round the labels')
                value = value.nonzero()
            return value.flatten().tolist()
        if value.dim() != 1 or value.numel() < 2 or value.is_floating_point():
            return super().label(sample)
        if self.query_key or self.leave_out:
            raise UserError(
                f'{self.label_key} has {value.numel()} levels, of which query_key= and leave_out= '
                'know nothing. Fix: leave these out, or give one label'
            )
        return value.tolist()

    def describe(self, sample: dict) -> dict:
        """Label, roles, id and path of a sample, as far as the settings ask for them."""
        found = super().describe(sample)
        if self.gallery_key is not None:
            found['in_gallery'] = bool(self.field(sample, self.gallery_key, 'gallery_key'))
        if self.query_key is not None:
            found['is_query'] = bool(self.field(sample, self.query_key, 'query_key'))
        if self.leave_out is not None:
            name = self.field(sample, self.leave_out, 'leave_out')
            value = None if isinstance(name, str) else torch.as_tensor(name)
            if value is None or value.numel() != 1 or value.is_floating_point():
                what = f'field {self.leave_out!r} (leave_out) must be one integer, got {name!r}'
                raise UserError(what, 'number the cameras or sequences')
            found['ids'] = int(value)
        if self.out_file is not None and 'img_path' in sample:
            found['paths'] = str(sample['img_path'])
        return found
