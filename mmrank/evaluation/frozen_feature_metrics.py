"""Accuracy of nearest neighbours and of a linear classifier on fixed features."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from mmrank.evaluation.feature_metric import FeatureMetric
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.functional import k_nearest_votes, unit_rows
from mmrank.registry import METRICS
from mmrank.settings import check_positive


def _count_hits(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Right answers and samples of each of C classes, (2, C) int64, of (n,) predictions."""
    return torch.stack(
        [torch.bincount(x, minlength=num_classes) for x in (labels[predicted == labels], labels)]
    )


def _accuracies(hits: Tensor, classes: Sequence[str] | None, per_class: bool) -> dict[str, float]:
    """Figures in percent of (2, C) hits of :func:`_count_hits`.

    ``mean_class_accuracy`` is over the classes that have samples; ``per_class`` adds
    ``accuracy/NAME`` of those, by number where ``classes`` is None.
    """
    right, all_ = (x.double() for x in hits.cpu())
    seen = all_ > 0
    share = 100 * right[seen] / all_[seen]
    figures = dict(
        accuracy=float(100 * right.sum() / all_.sum()), mean_class_accuracy=float(share.mean())
    )
    if per_class:
        indices = seen.nonzero()[:, 0].tolist()
        names = [classes[i] if classes else str(i) for i in indices]
        figures |= {f'accuracy/{name}': float(x) for name, x in zip(names, share)}
    return figures


class _FrozenFeatureMetric(FeatureMetric):
    """Base of metrics that learn from a labelled bank and predict queries.

    The data loader of the evaluation goes through both, as in
    ``dataset=dict(type='mmrank.IndexedConcatDataset', datasets=[train, test])``, both with the
    pipeline of the test.

    Args:
        per_class: Also report the accuracy of each class.
        **kwargs: See :class:`FeatureMetric`.
    """

    bank_idx = 0  # ``dataset_idx`` of the samples of the bank; all others are queries

    def __init__(self, per_class: bool = False, **kwargs) -> None:
        super().__init__(**kwargs)
        self.per_class = per_class

    def describe(self, sample: dict) -> dict:
        """Its label, and whether it belongs to the bank."""
        if 'dataset_idx' not in sample:
            raise KeyError(
                f'a data sample has no dataset_idx, by which {type(self).__name__} knows training '
                "from test images; evaluate on dict(type='mmrank.IndexedConcatDataset', "
                'datasets=[train, test])'
            )
        is_of_bank = int(sample['dataset_idx']) == self.bank_idx
        return {**super().describe(sample), 'in_gallery': is_of_bank}

    def num_classes(self, samples: RetrievalFeatures) -> int:
        """Number of classes, of names or labels, whichever is larger; checks the samples."""
        if not samples.features.isfinite().all():
            raise ValueError(
                'features are not finite: the network has diverged; lower its learning rate'
            )
        bank = int(samples.in_gallery.sum())
        if not 0 < bank < len(samples.labels):
            raise ValueError(
                f'{type(self).__name__} got {bank} samples of the bank '
                f'(dataset_idx={self.bank_idx}) and {len(samples.labels) - bank} queries; the data '
                'loader must go through both'
            )
        return max(int(samples.labels.max()) + 1, len(samples.classes or ()))


@METRICS.register_module()
class KNNMetric(_FrozenFeatureMetric):
    """Classifies test images by a vote of their nearest training images.

    Similarities are cosines, votes weighted; see :func:`mmrank.functional.k_nearest_votes`. Several
    processes share the queries and return the figures of a single one.

    Args:
        k: Number of neighbours.
        tau: Temperature of the votes.
        **kwargs: See :class:`_FrozenFeatureMetric`.
    """

    default_prefix = 'knn'

    def __init__(self, k: int = 200, tau: float = 0.07, **kwargs) -> None:
        super().__init__(**kwargs)
        check_positive(k=k, tau=tau)
        self.k = k
        self.tau = tau

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
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
        hits = _count_hits(votes.argmax(1), samples.labels[queries], num_classes)
        if group is not None:
            dist.all_reduce(hits, group=group)
        return _accuracies(hits, samples.classes, self.per_class)


#: Weight of the squared weights of a linear probe.
L2 = 1e-4
#: Most iterations of its L-BFGS, and the largest entry of the gradient at which it stops.
MAX_ITER = 200
TOLERANCE = 1e-5


class LinearProbe:
    """Multinomial logistic regression, fitted to its optimum.

    ``min mean_i CE(W x_i + b, y_i) + L2/2 |W|^2`` over standardised (N, D) finite features, by
    full-batch L-BFGS: the problem is convex, so there is neither a learning rate nor a seed.
    ``weight`` is (C, D), ``bias`` (C,), both float64; ``iterations`` counts the evaluations of the
    objective.
    """

    def __init__(self, features: Tensor, labels: Tensor, num_classes: int) -> None:
        x = features.double()
        self.mean = x.mean(0)
        std = x.std(0, correction=0)
        # A constant column carries no information.
        self.scale = torch.where(std > 0, 1 / std.clamp(min=1e-300), 0)
        x = (x - self.mean) * self.scale
        self.weight = x.new_zeros(num_classes, x.size(1), requires_grad=True)
        self.bias = x.new_zeros(num_classes, requires_grad=True)
        self.iterations = 0
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias],
            max_iter=MAX_ITER,
            history_size=20,
            tolerance_grad=TOLERANCE,
            tolerance_change=0,
            line_search_fn='strong_wolfe',
        )

        def objective() -> Tensor:
            self.iterations += 1
            optimizer.zero_grad()
            with torch.enable_grad():
                loss = cross_entropy(x @ self.weight.t() + self.bias, labels)
                loss = loss + L2 / 2 * self.weight.square().sum()
                loss.backward()
            return loss

        optimizer.step(objective)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)

    def __call__(self, features: Tensor) -> Tensor:
        """(M, C) float64 logits of (M, D) floats."""
        x = (features.double() - self.mean) * self.scale
        return x @ self.weight.t() + self.bias


@METRICS.register_module()
class LinearProbeMetric(_FrozenFeatureMetric):
    """Fits a linear classifier to training images and tests it on the others.

    The quick form of a linear evaluation: images are not augmented, and the classifier is at its
    optimum, so the figure depends on no learning rate and no seed; see :class:`LinearProbe`. The
    papers train it by SGD on augmented images, as ``mmrank.LinearEvaluationHook`` does. Of
    several processes the first one fits.

    Args:
        **kwargs: See :class:`_FrozenFeatureMetric`.
    """

    default_prefix = 'linear'

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
        num_classes = self.num_classes(samples)
        if group is not None and dist.get_rank(group) != 0:
            return {}
        bank = samples.in_gallery
        queries = samples.rows_of_queries()
        probe = LinearProbe(samples.features[bank], samples.labels[bank], num_classes)
        predicted = probe(samples.features[queries]).argmax(1)
        hits = _count_hits(predicted, samples.labels[queries], num_classes)
        return _accuracies(hits, samples.classes, self.per_class)
