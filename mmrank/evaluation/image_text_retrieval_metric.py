"""Retrieval of images by texts and of texts by images."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric

from mmrank.evaluation.feature_metric import device_or_default
from mmrank.metrics.best_positive_rank import best_positive_rank
from mmrank.metrics.retrieval.metrics import check_recall_at
from mmrank.registry import METRICS
from mmrank.settings import CheckedSettings


@METRICS.register_module()
class ImageTextRetrievalMetric(CheckedSettings, BaseMetric):
    """IR@K and TR@K, the recalls of image and of text retrieval, in percent.

    IR@K: texts whose image is among the K best images. TR@K: images of which one caption is among
    the K best texts. Ties never help. The model puts ``image_feature`` (D,) and ``text_feature``
    (T, D), a row for each caption of the image, into its data samples, as
    ``mmrank.ImageTextDualEncoder`` does; the score is the inner product.

    Args:
        recall_at: The K.
        merge_texts: False: a caption belongs to the image it came with, as in the benchmarks. True:
            captions with the same ``text_id`` are one text, which finds any image that has it: for
            made-up captions that many images share.
        device: Where to compute; None takes the first GPU if there is one.
        **kwargs: Of mmengine's ``BaseMetric``, such as ``prefix``.
    """

    default_prefix = 'image_text'

    def __init__(
        self,
        recall_at: Sequence[int] = (1, 5, 10),
        merge_texts: bool = False,
        device: str | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_recall_at(recall_at)
        self.recall_at = tuple(recall_at)
        self.merge_texts = merge_texts
        self.device = device

    def process(self, data_batch, data_samples: Sequence[dict]) -> None:
        for sample in data_samples:
            if 'image_feature' not in sample:
                raise KeyError(
                    f'a data sample has no image_feature, only {sorted(sample)}; use '
                    "type='mmrank.ImageTextDualEncoder', or let the model set it"
                )
            image = sample['image_feature'].detach().float().cpu().numpy()
            texts = np.zeros((0, len(image)), dtype=np.float32)
            if 'text_feature' in sample:
                texts = sample['text_feature'].detach().float().cpu().numpy()
            ids = np.zeros(0, dtype=np.int64)
            if self.merge_texts:
                ids = np.atleast_1d(sample.get('text_id', ids))
                if ids.shape != (len(texts),):
                    raise ValueError(
                        f'text_id must be one integer for each of the {len(texts)} texts of an '
                        f"image, got {ids}; keep 'text_id' in meta_keys of PackInputs"
                    )
            self.results.append((image, texts, ids))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """``IR@K`` and ``TR@K`` in percent, and ``num_images`` and ``num_texts``."""
        if not results:
            raise ValueError('ImageTextRetrievalMetric got no sample; is the data set empty?')
        images, texts, ids = zip(*results)
        owners = np.repeat(np.arange(len(images)), [len(x) for x in texts])
        images = torch.from_numpy(np.stack(images))
        texts = torch.from_numpy(np.concatenate(texts))
        if not len(texts):
            what = 'no data sample has a text_feature; let the data set return text'
            raise ValueError(f"{what}, and keep it with PackInputs(algorithm_keys=['text'])")
        text_of = np.arange(len(texts))
        if self.merge_texts:
            _, first, text_of = np.unique(
                np.concatenate(ids), return_index=True, return_inverse=True
            )
            texts = texts[torch.from_numpy(first)]
        # Pairs of image and text, each once, in the order of the images.
        pairs = np.unique(np.stack([owners, text_of], axis=1), axis=0)
        device = device_or_default(self.device)
        images = images.to(device)
        texts = texts.to(device)
        ranks = {'IR': _ranks(texts, images, pairs[:, ::-1]), 'TR': _ranks(images, texts, pairs)}
        figures = {
            f'{name}@{k}': 100 * (rank <= k).double().mean().item()
            for name, rank in ranks.items()
            for k in self.recall_at
        }
        return figures | dict(num_images=len(images), num_texts=len(texts))


def _ranks(queries, gallery, pairs: np.ndarray):
    """Ranks of the queries that have a positive."""
    pairs = pairs[np.argsort(pairs[:, 0], kind='stable')]
    asking, rows = np.unique(pairs[:, 0], return_inverse=True)
    asking, rows, cols = (
        torch.from_numpy(np.ascontiguousarray(x)).to(queries.device)
        for x in (asking, rows, pairs[:, 1])
    )
    return best_positive_rank(queries[asking], gallery, rows, cols)
