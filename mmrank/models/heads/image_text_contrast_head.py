"""Head for contrastive losses of images and texts."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.losses.contrastive.base import ContrastiveLoss
from mmrank.losses.loss_type import build_loss
from mmrank.registry import MODELS

from .sample_fields import ids_of


@MODELS.register_module()
class ImageTextContrastHead(BaseModule):
    """Passes embeddings and their samples to a contrastive loss.

    Args:
        loss: Config of a loss with ``forward(images, texts, sample_idx)``: ``mmrank.CLIPLoss``,
            ``CyCLIPLoss``, ``SogCLRLoss`` and ``InfoNCELoss`` with ``bimodal=True``,
            ``BimodalISogCLRLoss``.
        id_key: Field of the data samples with the index of the state of the loss; rows with the
            same index are no negatives of each other. ``sample_idx``: the pair. ``image_id``: the
            image, whose captions then share a state. Set ``num_samples`` of the loss to the number
            of images then, and leave out ``mmrank.SampleIndexHook``, which counts ``sample_idx``.
        init_cfg: See mmengine's ``BaseModule``.

    Raises:
        TypeError: If the loss is not contrastive.

    Example:
        >>> head = dict(
        ...     type='mmrank.ImageTextContrastHead',
        ...     loss=dict(type='mmrank.BimodalISogCLRLoss',
        ...               num_samples=2900000))
    """

    def __init__(
        self, loss: dict, id_key: str = 'sample_idx', init_cfg: dict | None = None
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        self.loss_module = build_loss('loss', loss)
        if not isinstance(self.loss_module, ContrastiveLoss):
            raise TypeError(
                f'loss.type={loss["type"]!r} is not contrastive; use '
                "'mmrank.CLIPLoss', 'mmrank.BimodalISogCLRLoss' or another of them, or "
                "head.type='mmrank.ImageTextInBatchHead' for 'mmrank.InBatchLoss'"
            )
        self.id_key = id_key

    def read_samples(self, data_samples: Sequence, device: torch.device) -> tuple[Tensor]:
        """Read what :meth:`loss` needs of a batch, before the encoders run.

        The loss fetches the state of the samples meanwhile.

        Args:
            data_samples: B data samples with ``id_key``.
            device: Where the embeddings will be.

        Returns:
            (B,) ``id_key`` of each pair, on the host.

        Raises:
            ValueError: If a data sample lacks the field.
        """
        # On the host, where a state in host memory needs them.
        ids = ids_of(data_samples, self.id_key, torch.device('cpu'))
        self.loss_module.prefetch(ids, device)
        return (ids,)

    def loss(self, images: Tensor, texts: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """Loss of a batch.

        Args:
            images: (B, D) embeddings.
            texts: (B, D) embeddings of the same pairs.
            ids: Of :meth:`read_samples`.

        Returns:
            Dict with ``loss``.
        """
        return dict(loss=self.loss_module(images, texts, ids))
