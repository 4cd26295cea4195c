"""Head that trains embeddings on pairs of images of one class."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import violated
from mmrank.errors import UserError
from mmrank.losses.protocols import TakesPairCounts
from mmrank.losses.registered import build_loss
from mmrank.losses.two_tower.in_batch_softmax import InBatchSoftmaxLoss
from mmrank.models.features import feature_rows
from mmrank.registry import MODELS
from mmrank.settings import check_positive
from mmrank.tensors import unit_rows

from .sample_fields import ids_of, labels_of

_NO_PAIRS = (
    'the two halves of the batch are not two images of one class each; use '
    "sampler=dict(type='mmrank.ClassPairSampler', ...) with a batch_size of the data loader of "
    'twice its pairs'
)
_OTHER_SET = (
    'sample_idx and gt_label of the batch differ from the training set; data sets joined by a '
    'ConcatDataset repeat their indices: use one data set'
)


@MODELS.register_module()
class InBatchRetrievalHead(BaseModule):
    """In-batch sampling for retrieval: the label matrix comes from classes.

    Two images of one class are a positive pair, all others negative ones, also of an image with
    itself, which have no gradient. The counts ``|O_i,:|``, class size - 1, are set by
    ``mmrank.ClassPairsHook`` or :meth:`set_class_labels`, and batches must come from
    ``mmrank.ClassPairSampler``, a uniform sample of positive pairs. Scores are
    ``scale * cosine + bias``.

    Args:
        loss: Config of ``mmrank.InBatchLoss``.
        scale: Factor of the cosine, > 0: the logistic loss needs scores beyond [-1, 1].
        bias: Constant of the score. Where positives are rare, about the log of their share starts a
            logistic loss at rest.
    """

    wants_class_labels = True

    def __init__(self, loss: dict, scale: float = 10.0, bias: float = 0.0) -> None:
        super().__init__()
        check_positive(scale=scale)
        self.scale = scale
        self.bias = bias
        self.loss_module = build_loss('loss', loss)
        # A softmax would push apart the images of a class.
        if isinstance(self.loss_module, InBatchSoftmaxLoss) or not (
            isinstance(self.loss_module, TakesPairCounts) and self.loss_module.wants_pair_counts
        ):
            what = f'loss.type={loss["type"]!r} is not a loss of sampled pairs'
            raise TypeError(f"{what}; use 'mmrank.InBatchLoss', or type='mmrank.RetrievalHead'")
        # The counts come from the classes, not from interactions.
        self.loss_module.wants_pair_counts = False
        self._labels = torch.zeros(0, dtype=torch.long)
        self._places = torch.zeros(0, dtype=torch.long)

    def set_class_labels(self, labels: Tensor) -> None:
        """Take the (N,) classes of the training set, by ``sample_idx``, which define the pairs."""
        labels = torch.as_tensor(labels).cpu().long()
        _, of_image, sizes = labels.unique(return_inverse=True, return_counts=True)
        counts = sizes[of_image] - 1
        paired = counts > 0
        if not paired.any():
            raise ValueError(
                'no class of the training set has two images, so there is no positive pair'
            )
        # An image without a pair is never sampled: it is left out.
        self._places = torch.where(paired, paired.cumsum(0) - 1, -1)
        self._labels = labels
        self.loss_module.counts.set_counts(counts[paired], counts[paired])

    def forward(self, feats: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(n, D) embeddings of length 1, at least float32; of a tuple, the last entry."""
        return unit_rows(feature_rows(feats))

    def loss(self, feats: Tensor | tuple[Tensor, ...], data_samples: Sequence) -> dict[str, Tensor]:
        """``loss`` of a batch of pairs, and the mean score of the sampled pairs (``pos_score``).

        The features are (2 B, D), or a tuple whose last entry is used: the left images of the
        pairs, then the right ones. Their data samples have ``gt_label`` and ``sample_idx``.
        """
        embeddings = self(feats)
        size = len(data_samples) // 2
        if len(embeddings) != 2 * size or len(data_samples) != 2 * size:
            raise ValueError(
                f'{len(embeddings)} features and {len(data_samples)} data samples are not a '
                "batch of pairs; use sampler=dict(type='mmrank.ClassPairSampler', ...) and no "
                'mixed features'
            )
        if not len(self._labels):
            raise RuntimeError(
                'the classes of the training set are not set: add '
                'custom_hooks=[dict(type="mmrank.ClassPairsHook")], or call '
                'set_class_labels(labels) before training'
            )
        device = embeddings.device
        labels = labels_of(data_samples, None, device)
        ids = ids_of(data_samples, 'sample_idx', device)
        expected = self._labels.to(device)
        known = ids.clamp(max=len(expected) - 1)
        paired = (labels[:size] == labels[size:]).all() & (ids[:size] != ids[size:]).all()
        agree = ((expected[known] == labels) & (ids == known)).all()
        for holds, message in ((paired, _NO_PAIRS), (agree, _OTHER_SET)):
            if violated(holds, message):
                raise UserError(message)
        places = self._places.to(device)[ids]
        left = embeddings[:size]
        right = embeddings[size:]
        scores = self.scale * (left * right).sum(1).detach() + self.bias
        # One more channel adds the bias to every inner product.
        left = pad(self.scale * left, (0, 1), value=self.bias)
        right = pad(right, (0, 1), value=1.0)
        loss = self.loss_module(left, right, places[:size], places[size:])
        return dict(loss=loss, pos_score=scores.sum() / max(size, 1))
