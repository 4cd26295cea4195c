"""Precision, recall and NDCG of the k best right entities."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric

from mmrank.registry import METRICS
from mmrank.settings import CheckedSettings


@METRICS.register_module()
class TopKMetric(CheckedSettings, BaseMetric):
    """P@K, R@K and NDCG@K of held-out pairs, means over left entities.

    P@K divides the held-out entities among the K best by K, even where there are fewer than K of
    them; R@K by the number of held-out ones. NDCG@K has gain 1 and discount ``log2(rank + 1)``, and
    is 1 when the first ``min(K, held-out)`` are hits. All in percent.

    Args:
        k: The values of K.
        **kwargs: Of mmengine's ``BaseMetric``, such as ``prefix``.
    """

    default_prefix = 'top_k'

    def __init__(self, k: Sequence[int] = (1, 5, 25), **kwargs) -> None:
        super().__init__(**kwargs)
        if not k or min(k) < 1:
            raise ValueError(f'k must be positive numbers, got {tuple(k)}')
        self.k = sorted(set(k))

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the figures of a batch of ``mmrank.TopKDataset`` and predictions for it."""
        top = torch.stack([x['top_k'] for x in data_samples]).cpu().numpy()
        if top.shape[1] < self.k[-1]:
            what = f'the model finds top_k={top.shape[1]} entities, but k={self.k[-1]} are required'
            raise ValueError(f'{what}; set top_k={self.k[-1]} of the model')
        true = data_batch['true']
        rows = true['rows'].cpu().numpy()
        self.results += list(_top_k_figures(top, rows, true['cols'].cpu().numpy(), self.k))

    def compute_metrics(self, results: list[np.ndarray]) -> dict[str, float]:
        """Means of ``precision@K``, ``recall@K`` and ``ndcg@K`` over left entities, in percent."""
        if not results:
            raise ValueError('TopKMetric got no sample; is the data set empty?')
        means = 100 * np.mean(results, axis=0)
        return {
            f'{name}@{k}': float(value)
            for name, values in zip(('precision', 'recall', 'ndcg'), means)
            for k, value in zip(self.k, values)
        }


def _top_k_figures(
    top: np.ndarray, true_rows: np.ndarray, true_cols: np.ndarray, k: Sequence[int]
) -> np.ndarray:
    """Precision, recall and NDCG, (B, 3, number of K) float64, of each left entity.

    ``top`` is (B, T): right entities, best first and distinct, -1 for none. The held-out pairs are
    (P,) rows of it, each there, and (P,) right entities.
    """
    size = len(top)
    num_true = np.bincount(true_rows, minlength=size)
    if (num_true == 0).any():
        what = f'left entity {int((num_true == 0).argmax())} of the batch has no held-out pair'
        raise ValueError(f'{what}, so its recall is undefined; remove it')
    width = max(top.max(initial=-1), true_cols.max(initial=-1)) + 2
    keys = np.arange(size)[:, None] * width + top
    # -1 would be the last column of the row before.
    hits = np.isin(keys, true_rows * width + true_cols) & (top >= 0)
    discount = 1 / np.log2(np.arange(2, top.shape[1] + 2))
    found = hits.cumsum(1)
    gain = (hits * discount).cumsum(1)
    ideal = discount.cumsum()
    figures = np.empty((size, 3, len(k)))
    for i, at in enumerate(k):
        figures[:, 0, i] = found[:, at - 1] / at
        figures[:, 1, i] = found[:, at - 1] / num_true
        best = ideal[np.minimum(num_true, at) - 1]
        figures[:, 2, i] = gain[:, at - 1] / best
    return figures
