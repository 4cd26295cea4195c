"""Head that trains images and captions as the two sides of a two-tower."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.losses.loss_type import build_loss
from mmrank.losses.two_tower.in_batch import InBatchLoss
from mmrank.losses.two_tower.in_batch_softmax import InBatchSoftmaxLoss
from mmrank.registry import MODELS

from .sample_fields import ids_of


@MODELS.register_module()
class ImageTextInBatchHead(BaseModule):
    """Passes the pairs of a batch to a loss of in-batch sampling.

    Images are its left and captions its right entities. An image may have several captions, and a
    caption several images: the loss corrects the bias of both counts, which a contrastive loss with
    the same negatives keeps.
    The counts are those of the training set: ``custom_hooks=[dict(type='mmrank.PairCountsHook')]``.
    Draw batches
    without replacement over all ranks: ``sampler=dict(type='mmrank.InBatchPairSampler',
    batch_size=...)``. With ``mode='sogram'`` set ``sampling='sogram'`` of the data set too.

    The scores are the inner products of the embeddings times ``scale``. Plain inner products
    (``normalize=False`` of the model) are the paper's; cosines are too narrow a range for the
    logistic loss.

    Args:
        loss: Config of ``mmrank.InBatchLoss`` or ``mmrank.InBatchSoftmaxLoss``.
        row_key: Field of the data samples with the image.
        col_key: Field with the caption.
        scale: Factor of the scores, > 0.
        init_cfg: See mmengine's ``BaseModule``.

    Raises:
        TypeError: If the loss is none of these.
        ValueError: If ``scale`` is not > 0.

    Example:
        >>> head = dict(
        ...     type='mmrank.ImageTextInBatchHead',
        ...     loss=dict(type='mmrank.InBatchLoss', mode='unbiased',
        ...               pointwise='logistic'))
    """

    def __init__(
        self,
        loss: dict,
        row_key: str = 'image_id',
        col_key: str = 'text_id',
        scale: float = 1.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        self.loss_module = build_loss('loss', loss)
        if not isinstance(self.loss_module, (InBatchLoss, InBatchSoftmaxLoss)):
            raise TypeError(
                f"loss.type={loss['type']!r} is not 'mmrank.InBatchLoss' or "
                "'mmrank.InBatchSoftmaxLoss'; for contrastive losses use "
                "head.type='mmrank.ImageTextContrastHead'"
            )
        if not scale > 0:
            raise ValueError(f'scale must be > 0, got {scale!r}')
        self.row_key, self.col_key, self.scale = row_key, col_key, scale

    def read_samples(self, data_samples: Sequence, device: torch.device) -> tuple[Tensor, Tensor]:
        """Read what :meth:`loss` needs of a batch, before the encoders run.

        Args:
            data_samples: B data samples with ``row_key`` and ``col_key``.
            device: Where the embeddings will be.

        Returns:
            (B,) ``row_key`` and (B,) ``col_key`` of each pair, on ``device``.

        Raises:
            ValueError: If a data sample lacks a field.
        """
        rows, cols = (ids_of(data_samples, key, device) for key in (self.row_key, self.col_key))
        return rows, cols

    def loss(self, images: Tensor, texts: Tensor, rows: Tensor, cols: Tensor) -> dict[str, Tensor]:
        """Loss of a batch.

        Args:
            images: (B, D) embeddings.
            texts: (B, D) embeddings of the same pairs.
            rows: Of :meth:`read_samples`.
            cols: Of :meth:`read_samples`.

        Returns:
            Dict with ``loss``.

        Raises:
            RuntimeError: If the training pairs are not set.
        """
        loss = self.loss_module(self.scale * images, texts, rows, cols)
        return dict(loss=loss)
