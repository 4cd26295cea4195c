"""Exact retrieval figures as a metric of an mmengine runner."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from mmengine.dist import (
    broadcast_object_list,
    collect_results,
    get_default_group,
    get_world_size,
)
from mmengine.evaluator import BaseMetric
from torch import Tensor

from mmrank.evaluation.retrieval_features import (
    RetrievalFeatures,
    save_features,
)
from mmrank.evaluation.retrieval_progress import RetrievalProgress
from mmrank.evaluation.retrieval_sharing import share_features
from mmrank.evaluation.retrieval_splits import random_galleries
from mmrank.functional import retrieval_metrics
from mmrank.functional.retrieval_metrics_figures import check_recall_at
from mmrank.functional.retrieval_metrics_input import SIMILARITIES
from mmrank.registry import METRICS

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

    Several processes share the work: each ranks its part of the queries, and
    all return the figures of a single process.

    A model that is evaluated puts the embedding of each sample, shape (D,),
    into its data sample: ``data_sample.set_field(row, 'feature')``.

    Args:
        feature_key: Field with the embedding.
        label_key: Field with the class index, as ``PackInputs`` leaves it.
        gallery_key: Field or meta key with a bool: True puts the sample
            into the gallery, False among the queries. None: both.
        gallery_per_class: Draw this many images of each class as the gallery
            and take all others as queries, ``num_splits`` times, and give
            the mean: 1 is the protocol of VehicleID's authors (Liu et al.,
            CVPR 2016). None: not drawn.
        num_splits: Number of these draws.
        split_seed: Seed of these draws.
        similarity: ``'cosine'`` or ``'dot'``.
        recall_at: The K of Recall@K.
        device: Where to compute; None takes the first GPU if there is one.
        memory_limit: Bytes of temporary tensors there.
        out_file: ``.npz`` file for embeddings, labels and image paths, which
            ``tools/analysis_tools/retrieval_report.py`` reads. None: none.
        path_key: Field or meta key with the image's path, for ``out_file``;
            where a sample has none, no paths are written.
        collect_device: See mmengine's ``BaseMetric``.
        prefix: See mmengine's ``BaseMetric``.
        collect_dir: See mmengine's ``BaseMetric``.

    Raises:
        ValueError: If an option makes no sense, or two do not go together.
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
        gallery_per_class: int | None = None,
        num_splits: int = 10,
        split_seed: int = 0,
        similarity: str = 'cosine',
        recall_at: Sequence[int] = (1, 10, 100, 1000),
        device: str | None = None,
        memory_limit: int = 2**30,
        out_file: str | None = None,
        path_key: str = 'img_path',
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
        if gallery_per_class is not None:
            if gallery_key is not None:
                raise ValueError(
                    f'gallery_key={gallery_key!r} and gallery_per_class='
                    f'{gallery_per_class} both choose the gallery; give one'
                )
            if gallery_per_class < 1 or num_splits < 1:
                raise ValueError(
                    'gallery_per_class and num_splits must be at least 1, '
                    f'got {gallery_per_class} and {num_splits}'
                )
        if out_file is not None and not str(out_file).endswith('.npz'):
            raise ValueError(f'out_file must end in .npz, got {out_file!r}')
        self.feature_key = feature_key
        self.label_key = label_key
        self.gallery_key = gallery_key
        self.gallery_per_class = gallery_per_class
        self.num_splits = num_splits
        self.split_seed = split_seed
        self.similarity = similarity
        self.recall_at = tuple(recall_at)
        self.device = device
        self.memory_limit = memory_limit
        self.out_file = out_file
        self.path_key = path_key

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
            (row, self._label(x), self._in_gallery(x), self._path(x))
            for row, x in zip(rows, data_samples)
        )

    def evaluate(self, size: int) -> dict[str, float]:
        """Rank all samples, on all ranks of the process group.

        Args:
            size: Samples of the data set; what a sampler padded is dropped.

        Returns:
            The figures of ``compute_metrics``, with the prefix.

        Raises:
            ValueError: If there is no sample, or one that is not finite.
            RuntimeError: On the other ranks, if the first has failed.
        """
        folder = {}
        if self.collect_device == 'cpu':
            folder = dict(tmpdir=self.collect_dir)
        results = collect_results(
            self.results, size, self.collect_device, **folder
        )
        self.results.clear()
        samples = share_features(lambda: self._join_and_save(results))
        group = get_default_group() if get_world_size() > 1 else None
        figures = [self._figures(samples, group)]
        broadcast_object_list(figures)
        if not self.prefix:
            return figures[0]
        return {f'{self.prefix}/{k}': v for k, v in figures[0].items()}

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Rank all samples in this process.

        Args:
            results: What ``process`` kept, of all ranks.

        Returns:
            ``mAP``, ``R_precision``, ``MAP_at_R`` and ``recall@K`` in
            percent, ``queries`` and ``queries_without_positive``.

        Raises:
            ValueError: If there is no sample, or one that is not finite.
        """
        return self._figures(self._join_and_save(results))

    def _join_and_save(self, results: list) -> RetrievalFeatures:
        if not results:
            raise ValueError(
                'RetrievalMetric got no sample; is the data set empty?'
            )
        rows, labels, in_gallery, paths = zip(*results)
        samples = RetrievalFeatures(
            features=torch.stack([torch.from_numpy(x) for x in rows]),
            labels=torch.tensor(labels),
            in_gallery=(
                None if self.gallery_key is None else torch.tensor(in_gallery)
            ),
            paths=None if None in paths else paths,
            classes=(self.dataset_meta or {}).get('classes'),
            similarity=self.similarity,
        )
        if self.out_file is not None:
            save_features(samples, self.out_file)
        return samples

    def _figures(
        self, samples: RetrievalFeatures, group=None
    ) -> dict[str, float]:
        device = self.device
        if device is None:
            device = 'cuda' if torch.cuda.is_available() else 'cpu'
        samples = samples.to(device)
        masks = [samples.in_gallery]
        if self.gallery_per_class is not None:
            masks = random_galleries(
                samples.labels,
                self.gallery_per_class,
                self.num_splits,
                self.split_seed,
            )
        summaries = [
            retrieval_metrics(
                *replace(samples, in_gallery=mask).sets(),
                similarity=self.similarity,
                memory_limit=self.memory_limit,
                progress=RetrievalProgress(),
                group=group,
            ).summary(self.recall_at)
            for mask in masks
        ]
        # Every draw has as many queries.
        return {
            name: value
            if name in _COUNTS
            else 100 * sum(x[name] for x in summaries) / len(summaries)
            for name, value in summaries[0].items()
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

    def _path(self, sample: dict) -> str | None:
        if self.out_file is None or self.path_key not in sample:
            return None
        return str(sample[self.path_key])
