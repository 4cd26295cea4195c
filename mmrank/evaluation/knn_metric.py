"""Accuracy of nearest neighbours on fixed features."""

import torch.distributed as dist

from mmrank.evaluation.frozen_feature_metric import FrozenFeatureMetric, accuracies, count_hits
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional.metrics.k_nearest_votes import k_nearest_votes
from mmrank.losses.contrastive.base import unit_rows
from mmrank.registry import METRICS


@METRICS.register_module()
class KNNMetric(FrozenFeatureMetric):
    """Classifies test images by a vote of their nearest training images.

    Similarities are cosines, votes weighted; see
    :func:`mmrank.functional.k_nearest_votes`. Several processes share the queries and return the
    figures of a single one.

    Args:
        k: Number of neighbours.
        tau: Temperature of the votes.
        bank_idx: See :class:`FrozenFeatureMetric`.
        per_class: Also report the accuracy of each class.
        device: Where to compute; None takes the first GPU if there is one.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.

    Raises:
        ValueError: If ``k`` or ``tau`` is not positive.
    """

    default_prefix = 'knn'

    def __init__(
        self,
        k: int = 200,
        tau: float = 0.07,
        bank_idx: int = 0,
        per_class: bool = False,
        device: str | None = None,
        collect_device: str = 'cpu',
        prefix: str | None = None,
        collect_dir: str | None = None,
    ) -> None:
        super().__init__(
            bank_idx=bank_idx,
            per_class=per_class,
            device=device,
            collect_device=collect_device,
            prefix=prefix,
            collect_dir=collect_dir,
        )
        for name, value in (('k', k), ('tau', tau)):
            if not value > 0:
                raise ValueError(f'{name} must be > 0, got {value!r}')
        self.k, self.tau = k, tau

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
        """Accuracy and mean accuracy over classes, in percent."""
        num_classes = self.num_classes(samples)
        features = unit_rows(samples.features)
        queries = samples.rows_of_queries()
        if group is not None:
            parts = queries.tensor_split(dist.get_world_size(group))
            queries = parts[dist.get_rank(group)]
        votes = k_nearest_votes(
            features[queries],
            features[samples.in_gallery],
            samples.labels[samples.in_gallery],
            num_classes,
            self.k,
            self.tau,
        )
        hits = count_hits(votes.argmax(1), samples.labels[queries], num_classes)
        if group is not None:
            dist.all_reduce(hits, group=group)
        return accuracies(hits, samples.classes, self.per_class)
