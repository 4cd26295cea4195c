"""Base of metrics on the features of a whole data set."""

from collections.abc import Sequence

import torch
from mmengine.dist import broadcast_object_list, collect_results, is_main_process
from mmengine.evaluator import BaseMetric
from torch import Tensor

from mmrank.distributed import world_group
from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.settings import CheckedSettings


def device_or_default(device: str | None) -> str:
    """A device; for None the first GPU if there is one."""
    return device or ('cuda' if torch.cuda.is_available() else 'cpu')


class FeatureMetric(CheckedSettings, BaseMetric):
    """Base of metrics that need the features of all samples at once.

    A model that is evaluated puts the feature of each sample, shape (D,), into its data sample:
    ``data_sample.set_field(row, 'feature')``. Every process gets all features and may share the
    work. Subclasses implement :meth:`figures`.

    Args:
        device: Where to compute; None takes the first GPU if there is one.
        **kwargs: Of mmengine's ``BaseMetric``: ``prefix``, ``collect_device``, ``collect_dir``.
    """

    feature_key = 'feature'  # Field with the feature
    label_key = 'gt_label'  # Field with the class index, as ``PackInputs`` leaves it

    def __init__(self, device: str | None = None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.device = device

    def figures(self, samples: RetrievalFeatures, group=None) -> dict[str, float]:
        """Figures by name of all samples, which lie on the device to compute on.

        The ranks of ``group`` may share the work; the figures of the first rank count.
        """
        raise NotImplementedError

    def describe(self, sample: dict) -> dict:
        """What is kept of a sample with its feature, by the fields of ``RetrievalFeatures``."""
        return {'labels': self.label(sample)}

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        """Keep the feature of each sample of a batch, and what describes it."""
        if not data_samples:
            return
        features = torch.stack([self._feature(x) for x in data_samples])
        if features.dtype == torch.bfloat16:  # NumPy has no such type
            features = features.float()
        # As an array a row is sent to other ranks without its whole batch.
        rows = features.detach().cpu().numpy()
        self.results.extend(zip(rows, map(self.describe, data_samples)))

    def evaluate(self, size: int) -> dict[str, float]:
        """Compute the figures on all ranks; the padding of a sampler behind ``size`` is dropped.

        If the first rank fails, the others raise a ``RuntimeError``.
        """
        samples = self.gather(size).to(device_or_default(self.device))
        figures = [self.figures(samples, world_group())]
        broadcast_object_list(figures)
        if not self.prefix:
            return figures[0]
        return {f'{self.prefix}/{k}': v for k, v in figures[0].items()}

    def gather(self, size: int) -> RetrievalFeatures:
        """All ``size`` samples of the data set, on every rank."""
        folder = dict(tmpdir=self.collect_dir) if self.collect_device == 'cpu' else {}
        results = collect_results(self.results, size, self.collect_device, **folder)
        self.results.clear()
        message = [None]
        if is_main_process():
            try:
                message = [self.join(results)]
            except Exception as error:
                # Without a word the others would wait until the timeout.
                broadcast_object_list([repr(error)])
                raise
        broadcast_object_list(message)
        if isinstance(message[0], str):
            raise RuntimeError(f'the first rank has failed: {message[0]}')
        return message[0]

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the figures by name in this process, of the results of all ranks."""
        return self.figures(self.join(results).to(device_or_default(self.device)))

    def join(self, results: list) -> RetrievalFeatures:
        """Samples of the results of all ranks."""
        if not results:
            raise ValueError(f'{type(self).__name__} got no sample; is the data set empty?')
        rows, described = zip(*results)
        names = [name for name in described[0] if all(name in x for x in described)]
        columns = {name: [x[name] for x in described] for name in names}
        labels = columns['labels']
        if len({isinstance(x, list) and len(x) for x in labels}) > 1:
            odd = next(x for x in labels if isinstance(x, list))
            raise UserError(
                f'field {self.label_key!r} must be one class index, got {odd}, or labels of '
                'as many levels in every sample. Fix: the same number of labels in each'
            )
        columns = {k: x if k == 'paths' else torch.tensor(x) for k, x in columns.items()}
        return RetrievalFeatures(
            features=torch.stack([torch.from_numpy(x) for x in rows]),
            classes=(self.dataset_meta or {}).get('classes'),
            **columns,
        )

    def field(self, sample: dict, key: str, option: str):
        """Field ``key`` of a data sample, which ``option`` of the metric names."""
        if key not in sample:
            what = f'a data sample has no field {key!r} ({option} of {type(self).__name__})'
            raise KeyError(f'{what}, only {sorted(sample)}; let the model set it in predict')
        return sample[key]

    def _feature(self, sample: dict) -> Tensor:
        value = self.field(sample, self.feature_key, 'feature_key')
        if not isinstance(value, Tensor) or value.dim() != 1:
            shape = getattr(value, 'shape', type(value).__name__)
            what = f'field {self.feature_key!r} must be a tensor of shape (D,)'
            raise ValueError(f'{what}, one embedding per data sample, got {shape}')
        return value

    def label_field(self, sample: dict) -> Tensor:
        """The field with the class of a sample; a class below 0 is refused."""
        value = torch.as_tensor(self.field(sample, self.label_key, 'label_key'))
        if (value < 0).any():
            what = f'field {self.label_key!r} must hold class indices >= 0, got {value.tolist()}'
            raise UserError(what, 'leave samples without a class out of the data set')
        return value

    def label(self, sample: dict) -> int | list[int]:
        """Class index of a sample."""
        value = self.label_field(sample)
        if value.numel() != 1 or value.is_floating_point():
            raise ValueError(
                f'field {self.label_key!r} must be one class index, got {value.tolist()}; for '
                'several labels a sample use RetrievalMetric(multi_label=True)'
            )
        return int(value)
