"""Accuracy of a linear classifier on fixed features."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from mmrank.evaluation.frozen_feature_metric import FrozenFeatureMetric, accuracies, count_hits
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.registry import METRICS


class LinearProbe:
    """Multinomial logistic regression, fitted to its optimum.

    ``min mean_i CE(W x_i + b, y_i) + l2/2 |W|^2`` over standardised features, by full-batch L-BFGS:
    the problem is convex, so there is neither a
    learning rate nor a seed.

    Args:
        features: (N, D) finite floats, N >= 1.
        labels: (N,) int64 in ``[0, num_classes)``.
        num_classes: C.
        l2: Weight of the squares, > 0.
        max_iter: Most iterations.
        tolerance: Largest entry of the gradient at which it stops.

    Attributes:
        weight: (C, D) float64.
        bias: (C,) float64.
        iterations: Evaluations of the objective.

    Raises:
        ValueError: If there is nothing to fit, or ``l2`` is out of range.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        num_classes: int,
        l2: float = 1e-4,
        max_iter: int = 200,
        tolerance: float = 1e-5,
    ) -> None:
        if not l2 > 0:
            raise ValueError(
                f'l2 must be > 0, got {l2!r}: without it separable classes have no optimum'
            )
        if features.size(0) == 0:
            raise ValueError('there are no features to fit a probe to')
        x = features.double()
        self.mean = x.mean(0)
        std = x.std(0, correction=0)
        # A constant column carries no information.
        self.scale = torch.where(std > 0, 1 / std.clamp(min=1e-300), 0)
        self.weight = x.new_zeros(num_classes, x.size(1), requires_grad=True)
        self.bias = x.new_zeros(num_classes, requires_grad=True)
        self.iterations = 0
        self._fit((x - self.mean) * self.scale, labels, l2, max_iter, tolerance)

    def _fit(self, x, labels, l2, max_iter, tolerance) -> None:
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias],
            max_iter=max_iter,
            history_size=20,
            tolerance_grad=tolerance,
            tolerance_change=0,
            line_search_fn='strong_wolfe',
        )

        def objective() -> Tensor:
            self.iterations += 1
            optimizer.zero_grad()
            with torch.enable_grad():
                loss = cross_entropy(x @ self.weight.t() + self.bias, labels)
                loss = loss + l2 / 2 * self.weight.square().sum()
                loss.backward()
            return loss

        optimizer.step(objective)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)

    def __call__(self, features: Tensor) -> Tensor:
        """Logits.

        Args:
            features: (M, D) floats.

        Returns:
            (M, C) float64.
        """
        x = (features.double() - self.mean) * self.scale
        return x @ self.weight.t() + self.bias


@METRICS.register_module()
class LinearProbeMetric(FrozenFeatureMetric):
    """Fits a linear classifier to training images and tests it on the others.

    The quick form of a linear evaluation: images are not augmented, and the classifier is at its
    optimum, so the figure depends on no learning rate
    and no seed; see :class:`LinearProbe`. The papers train it by SGD on augmented images:
    ``configs/isogclr`` has a config for that.
    Several processes: the first one fits.

    Args:
        l2: Weight of the squared weights, > 0.
        max_iter: Most iterations of L-BFGS.
        tolerance: Largest entry of the gradient at which it stops.
        bank_idx: See :class:`FrozenFeatureMetric`.
        per_class: Also report the accuracy of each class.
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
            bank_idx=bank_idx,
            per_class=per_class,
            device=device,
            collect_device=collect_device,
            prefix=prefix,
            collect_dir=collect_dir,
        )
        if not l2 > 0:
            raise ValueError(f'l2 must be > 0, got {l2!r}')
        self.options = dict(l2=l2, max_iter=max_iter, tolerance=tolerance)

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
        """Accuracy and mean accuracy over classes, in percent."""
        num_classes = self.num_classes(samples)
        if group is not None and dist.get_rank(group) != 0:
            return {}
        bank, queries = samples.in_gallery, samples.rows_of_queries()
        probe = LinearProbe(
            samples.features[bank], samples.labels[bank], num_classes, **self.options
        )
        predicted = probe(samples.features[queries]).argmax(1)
        hits = count_hits(predicted, samples.labels[queries], num_classes)
        return accuracies(hits, samples.classes, self.per_class)
