"""Exact retrieval figures as a metric of an mmengine runner."""

import logging
import time
from collections.abc import Sequence

import torch
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log
from torch import Tensor

from mmrank.functional import retrieval_metrics
from mmrank.functional.retrieval_metrics_figures import check_recall_at
from mmrank.functional.retrieval_metrics_input import SIMILARITIES
from mmrank.registry import METRICS

# Seconds between two lines in the log while the ranks are computed.
_LOG_INTERVAL = 10.0
_COUNTS = ('queries', 'queries_without_positive')


@METRICS.register_module()
class RetrievalMetric(BaseMetric):
    """mAP, R-Precision, MAP@R and Recall@K of embeddings, in percent.

    Every sample searches all others, itself left out, for those of its
    class; with ``gallery_key`` queries and gallery are separate sets. The
    definitions, also for ties, are those of
    ``mmrank.functional.retrieval_metrics``, which never holds the matrix of
    all scores. Samples without a positive are left out of the means and
    counted in ``queries_without_positive``.

    A model that is evaluated puts the embedding of each sample, shape (D,),
    into its data sample: ``data_sample.set_field(row, 'feature')``.

    Args:
        feature_key: Field with the embedding.
        label_key: Field with the class index, as ``PackInputs`` leaves it.
        gallery_key: Field or meta key with a bool: True puts the sample
            into the gallery, False among the queries. None: both.
        similarity: ``'cosine'`` or ``'dot'``.
        recall_at: The K of Recall@K.
        device: Where to compute; None takes the first GPU if there is one.
        memory_limit: Bytes of temporary tensors there.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.

    Raises:
        ValueError: If ``similarity`` or ``recall_at`` make no sense.
        TypeError: If ``recall_at`` is not a list.

    Example:
        >>> val_evaluator = dict(type='mmrank.RetrievalMetric',
        ...                      recall_at=(1, 10, 100, 1000))
    """

    default_prefix = 'retrieval'

    def __init__(
        self,
        feature_key: str = 'feature',
        label_key: str = 'gt_label',
        gallery_key: str | None = None,
        similarity: str = 'cosine',
        recall_at: Sequence[int] = (1, 10, 100, 1000),
        device: str | None = None,
        memory_limit: int = 2**30,
        collect_device: str = 'cpu',
        prefix: str | None = None,
        collect_dir: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix, collect_dir)
        check_recall_at(recall_at)
        if similarity not in SIMILARITIES:
            raise ValueError(
                f'similarity must be one of {SIMILARITIES}, got {similarity!r}'
            )
        self.feature_key = feature_key
        self.label_key = label_key
        self.gallery_key = gallery_key
        self.similarity = similarity
        self.recall_at = tuple(recall_at)
        self.device = device
        self.memory_limit = memory_limit

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        """Keep embedding, label and role of each sample of a batch.

        Args:
            data_batch: Not used.
            data_samples: Data samples as dicts.
        """
        if not data_samples:
            return
        features = torch.stack([self._feature(x) for x in data_samples])
        if features.dtype == torch.bfloat16:  # NumPy has no such type
            features = features.float()
        # As an array a row is sent to other ranks without its whole batch.
        rows = features.detach().cpu().numpy()
        self.results.extend(
            (row, self._label(x), self._in_gallery(x))
            for row, x in zip(rows, data_samples)
        )

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Rank all samples.

        Args:
            results: What ``process`` kept, of all ranks.

        Returns:
            ``mAP``, ``R_precision``, ``MAP_at_R`` and ``recall@K`` in
            percent, ``queries`` and ``queries_without_positive``.

        Raises:
            ValueError: If there is no sample, or one that is not finite.
        """
        if not results:
            raise ValueError(
                'RetrievalMetric got no sample; is the data set empty?'
            )
        device = self.device
        if device is None:
            device = 'cuda' if torch.cuda.is_available() else 'cpu'
        rows, labels, in_gallery = zip(*results)
        features = torch.stack([torch.from_numpy(x) for x in rows]).to(device)
        labels = torch.tensor(labels, device=device)
        sets = (features, labels)
        if self.gallery_key is not None:
            mask = torch.tensor(in_gallery, device=device)
            sets = (features[~mask], labels[~mask], features[mask])
            sets = (*sets, labels[mask])
        figures = retrieval_metrics(
            *sets,
            similarity=self.similarity,
            memory_limit=self.memory_limit,
            progress=_ProgressLog(),
        ).summary(self.recall_at)
        return {
            name: value if name in _COUNTS else 100 * value
            for name, value in figures.items()
        }

    def _field(self, sample: dict, key: str, option: str):
        if key not in sample:
            raise KeyError(
                f'a data sample has no field {key!r} ({option} of '
                f'RetrievalMetric), only {sorted(sample)}; let the model set '
                f'it in predict, or name another field'
            )
        return sample[key]

    def _feature(self, sample: dict) -> Tensor:
        value = self._field(sample, self.feature_key, 'feature_key')
        if not isinstance(value, Tensor) or value.dim() != 1:
            shape = getattr(value, 'shape', type(value).__name__)
            raise ValueError(
                f'field {self.feature_key!r} must be a tensor of shape (D,), '
                f'one embedding per data sample, got {shape}'
            )
        return value

    def _label(self, sample: dict) -> int:
        value = torch.as_tensor(
            self._field(sample, self.label_key, 'label_key')
        )
        if value.numel() != 1 or value.is_floating_point():
            raise ValueError(
                f'field {self.label_key!r} must be one class index, got '
                f'{value.tolist()}; several labels per sample are not '
                'supported'
            )
        return int(value)

    def _in_gallery(self, sample: dict) -> bool:
        if self.gallery_key is None:
            return True
        return bool(self._field(sample, self.gallery_key, 'gallery_key'))


class _ProgressLog:
    """A line with the time left every now and then."""

    def __init__(self) -> None:
        self._start = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _LOG_INTERVAL or done == total:
            return
        self._last = now
        left = (now - self._start) / done * (total - done)
        print_log(
            f'retrieval: {done} of {total} queries ranked, {left:.0f} s left',
            logger='current',
            level=logging.INFO,
        )
