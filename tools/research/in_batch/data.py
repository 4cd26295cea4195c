"""What the trainings of one two-tower config share."""

import copy

import torch
from mmengine.config import Config

from mmrank.datasets import InteractionDataset, TopKDataset
from mmrank.registry import DATASETS, METRICS


class TwoTowerData:
    """Training pairs, held-out pairs and metric of a config, read once.

    Args:
        cfg: A config of ``mmrank.TwoTower`` on ``mmrank.InteractionDataset`` and
            ``mmrank.TopKDataset``.

    Attributes:
        cfg: The config.
        train: The training pairs.

    Raises:
        TypeError: If its data sets are of other types.
    """

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.train = DATASETS.build(cfg.train_dataloader.dataset)
        held_out = DATASETS.build(cfg.val_dataloader.dataset)
        for dataset, wanted in ((self.train, InteractionDataset), (held_out, TopKDataset)):
            if not isinstance(dataset, wanted):
                raise TypeError(
                    f'the config has a {type(dataset).__name__} where a {wanted.__name__} is '
                    'required; use a config of configs/in_batch'
                )
        self._test = held_out.__getitems__(range(len(held_out)))
        self.metric = METRICS.build(cfg.val_evaluator)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return self.train.interactions.shape

    @property
    def num_positives(self) -> int:
        """``|O|``."""
        return len(self.train.interactions)

    def sampled_as(self, sampling: str) -> InteractionDataset:
        """The training pairs for another sampler, not read again."""
        dataset = copy.copy(self.train)
        dataset.sampling = sampling
        return dataset

    def batch_size(self, batch_ratio: float) -> int:
        """``|Ohat|`` of a batch ratio ``|Ohat|^2 / |O|^2``, at least 2."""
        return max(2, round(self.num_positives * batch_ratio**0.5))

    def all_pairs(self) -> dict:
        """The batch of all training pairs."""
        return self.sampled_as('in_batch').__getitems__(range(self.num_positives))

    @torch.no_grad()
    def evaluate(self, model) -> dict[str, float]:
        """Metrics of a two-tower model on the held-out pairs."""
        training = model.training
        model.eval()
        batch = model.data_preprocessor(self._test)
        results = model(mode='predict', **batch)
        model.train(training)
        self.metric.results.clear()
        self.metric.process(self._test, results)
        return self.metric.evaluate(len(results))
