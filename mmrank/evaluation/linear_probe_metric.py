"""Accuracy of a linear classifier on fixed features."""

import torch.distributed as dist

from mmrank.evaluation.class_accuracy import accuracies, count_hits
from mmrank.evaluation.frozen_feature_metric import FrozenFeatureMetric
from mmrank.evaluation.linear_probe import LinearProbe
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.registry import METRICS


@METRICS.register_module()
class LinearProbeMetric(FrozenFeatureMetric):
    """Fits a linear classifier to training images and tests it on the others.

    The quick form of a linear evaluation: images are not augmented, and the
    classifier is at its optimum, so the figure depends on no learning rate
    and no seed; see :class:`mmrank.evaluation.linear_probe.LinearProbe`. The
    papers train it by SGD on augmented images: ``configs/isogclr`` has a
    config for that. Several processes: the first one fits.

    Args:
        l2: Weight of the squared weights, > 0.
        max_iter: Most iterations of L-BFGS.
        tolerance: Largest entry of the gradient at which it stops.
        bank_idx: See :class:`FrozenFeatureMetric`.
        per_class: Also give the accuracy of each class.
        device: Where to compute; None takes the first GPU if there is one.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.

    Raises:
        ValueError: If ``l2`` is not positive.
    """

    default_prefix = 'linear'

    def __init__(
        self,
        l2: float = 1e-4,
        max_iter: int = 200,
        tolerance: float = 1e-5,
        bank_idx: int = 0,
        per_class: bool = False,
        device: str | None = None,
        collect_device: str = 'cpu',
        prefix: str | None = None,
        collect_dir: str | None = None,
    ) -> None:
        super().__init__(
            bank_idx, per_class, device, collect_device, prefix, collect_dir
        )
        if not l2 > 0:
            raise ValueError(f'l2 must be > 0, got {l2!r}')
        self.options = dict(l2=l2, max_iter=max_iter, tolerance=tolerance)

    def figures(
        self, samples: RetrievalFeatures, group=None
    ) -> dict[str, float]:
        """Accuracy and mean accuracy over classes, in percent."""
        num_classes = self.num_classes(samples)
        if group is not None and dist.get_rank(group) != 0:
            return {}
        bank, queries = samples.in_gallery, samples.rows_of_queries()
        probe = LinearProbe(
            samples.features[bank],
            samples.labels[bank],
            num_classes,
            **self.options,
        )
        predicted = probe(samples.features[queries]).argmax(1)
        hits = count_hits(predicted, samples.labels[queries], num_classes)
        return accuracies(hits, samples.classes, self.per_class)
