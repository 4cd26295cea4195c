"""Base of metrics that learn from one set and predict another."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmrank.evaluation.feature_metric import FeatureMetric
from mmrank.evaluation.retrieval_features import RetrievalFeatures


def count_hits(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Right answers and samples of each class.

    Args:
        predicted: (n,) int64.
        labels: (n,) int64 in ``[0, num_classes)``.
        num_classes: C.

    Returns:
        (2, C) int64; those of several ranks may be added.
    """
    return torch.stack(
        [torch.bincount(x, minlength=num_classes) for x in (labels[predicted == labels], labels)]
    )


def accuracies(hits: Tensor, classes: Sequence[str] | None, per_class: bool) -> dict[str, float]:
    """Figures in percent.

    Args:
        hits: (2, C) of :func:`count_hits`.
        classes: C names, or None for numbers.
        per_class: Also report the accuracy of each class.

    Returns:
        ``accuracy``; ``mean_class_accuracy`` over the classes that have samples; with ``per_class``
        ``accuracy/NAME`` of those.
    """
    right, all_ = (x.double() for x in hits.cpu())
    there = all_ > 0
    share = 100 * right[there] / all_[there]
    figures = dict(
        accuracy=float(100 * right.sum() / all_.sum()), mean_class_accuracy=float(share.mean())
    )
    if per_class:
        indices = there.nonzero()[:, 0].tolist()
        names = [classes[i] if classes else str(i) for i in indices]
        figures |= {f'accuracy/{name}': float(x) for name, x in zip(names, share)}
    return figures


class FrozenFeatureMetric(FeatureMetric):
    """Tells the labelled bank from the queries.

    The data loader of the evaluation goes through both, as in
    ``dataset=dict(type='mmrank.IndexedConcatDataset', datasets=[train, test])``, both with the
    pipeline of the test.

    Args:
        bank_idx: ``dataset_idx`` of the samples of the bank; all others are queries.
        per_class: Also report the accuracy of each class.
        device: Where to compute; None takes the first GPU if there is one.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.
    """

    def __init__(
        self,
        bank_idx: int = 0,
        per_class: bool = False,
        device: str | None = None,
        collect_device: str = 'cpu',
        prefix: str | None = None,
        collect_dir: str | None = None,
    ) -> None:
        super().__init__(
            device=device, collect_device=collect_device, prefix=prefix, collect_dir=collect_dir
        )
        self.bank_idx, self.per_class = bank_idx, per_class

    def in_gallery(self, sample: dict) -> bool:
        """Whether it belongs to the bank."""
        if 'dataset_idx' not in sample:
            raise KeyError(
                'a data sample has no dataset_idx, which '
                f'{type(self).__name__} requires to separate training from '
                'test images; evaluate on '
                "dict(type='mmrank.IndexedConcatDataset', datasets=[train, "
                'test])'
            )
        return int(sample['dataset_idx']) == self.bank_idx

    def num_classes(self, samples: RetrievalFeatures) -> int:
        """Number of classes, of names or labels, whichever is larger.

        Args:
            samples: All samples.

        Raises:
            ValueError: If there is no bank or no query, or a feature is not finite.
        """
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
        # Those of `samples` are on the first rank only.
        classes = (self.dataset_meta or {}).get('classes') or ()
        return max(int(samples.labels.max()) + 1, len(classes))
