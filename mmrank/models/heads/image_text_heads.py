"""Heads that train the embeddings of images and texts."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.losses.contrastive.base import ContrastiveLoss
from mmrank.losses.registered import build_loss
from mmrank.losses.two_tower.in_batch import InBatchLoss
from mmrank.losses.two_tower.in_batch_softmax import InBatchSoftmaxLoss
from mmrank.registry import MODELS
from mmrank.settings import check_positive

from .sample_fields import ids_of


@MODELS.register_module()
class ImageTextContrastHead(BaseModule):
    """Passes embeddings and their samples to a contrastive loss.

    Args:
        loss: Config of a loss with ``forward(images, texts, sample_idx)``: ``mmrank.CLIPLoss``,
            ``CyCLIPLoss``, ``SogCLRLoss`` and ``InfoNCELoss`` with ``bimodal=True``,
            ``BimodalISogCLRLoss``.
        id_key: Field of the data samples with the index of the state of the loss; rows with the
            same index are not negatives of each other. ``sample_idx``: the pair. ``image_id``: the
            image, whose captions then share a state. Set ``num_samples`` of the loss to the number
            of images then, and leave out ``mmrank.SampleIndexHook``, which counts ``sample_idx``.
        label_key: Field with a class, whose pairs are positives of each other: ``gt_label``; or
            ``text_id``, which spares captions that repeat in losses of true negatives, as SogCLR.
            None: a pair is a positive of itself alone.
    """

    def __init__(
        self, loss: dict, id_key: str = 'sample_idx', label_key: str | None = None
    ) -> None:
        super().__init__()
        self.loss_module = build_loss('loss', loss)
        if not isinstance(self.loss_module, ContrastiveLoss):
            raise TypeError(
                f"loss.type={loss['type']!r} is not contrastive; use 'mmrank.CLIPLoss', "
                "'mmrank.BimodalISogCLRLoss' or another of them, or "
                "head.type='mmrank.ImageTextInBatchHead' for 'mmrank.InBatchLoss'"
            )
        self.keys = [id_key] if label_key is None else [id_key, label_key]

    def loss(self, images: Tensor, texts: Tensor, data_samples: Sequence) -> dict[str, Tensor]:
        """Dict with ``loss`` of (B, D) embeddings and the fields of their B data samples."""
        # On the host, where an index that does not fit is named.
        ids, *labels = (ids_of(data_samples, key, torch.device('cpu')) for key in self.keys)
        return dict(loss=self.loss_module(images, texts, ids, labels=labels[0] if labels else None))


@MODELS.register_module()
class ImageTextInBatchHead(BaseModule):
    """Passes the pairs of a batch to a loss of in-batch sampling.

    Images are its left and captions its right entities. The loss corrects the bias of images with
    several captions, and of captions with several images, by the counts of the training set:
    ``custom_hooks=[dict(type='mmrank.PairCountsHook')]``. Draw batches without replacement over all
    ranks: ``sampler=dict(type='mmrank.InBatchPairSampler', batch_size=...)``. Plain inner products
    (``normalize=False`` of the model) are the paper's; cosines are too narrow a range for the
    logistic loss.

    Args:
        loss: Config of ``mmrank.InBatchLoss`` or ``mmrank.InBatchSoftmaxLoss``.
        scale: Factor of the scores, > 0.
    """

    KEYS = ('image_id', 'text_id')  # Fields of the data samples with the image and the caption

    def __init__(self, loss: dict, scale: float = 1.0) -> None:
        super().__init__()
        self.loss_module = build_loss('loss', loss)
        if not isinstance(self.loss_module, (InBatchLoss, InBatchSoftmaxLoss)):
            raise TypeError(
                f"loss.type={loss['type']!r} is not 'mmrank.InBatchLoss' or "
                "'mmrank.InBatchSoftmaxLoss'; for contrastive losses use "
                "head.type='mmrank.ImageTextContrastHead'"
            )
        check_positive(scale=scale)
        self.scale = scale

    def loss(self, images: Tensor, texts: Tensor, data_samples: Sequence) -> dict[str, Tensor]:
        """Dict with ``loss`` of (B, D) embeddings of the pairs that the data samples name."""
        rows, cols = (ids_of(data_samples, key, images.device) for key in self.KEYS)
        return dict(loss=self.loss_module(self.scale * images, texts, rows, cols))
