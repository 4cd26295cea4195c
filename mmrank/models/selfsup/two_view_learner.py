"""Self-supervised learning on two views of each image."""

from collections.abc import Sequence

import torch
from mmpretrain.models.selfsup import BaseSelfSupervisor
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import adaptive_avg_pool2d

from mmrank.errors import UserError
from mmrank.losses.registered import build_loss
from mmrank.models.features import last_features
from mmrank.models.heads.sample_fields import ids_of


class TwoViewLearner(BaseSelfSupervisor):
    """Two views through one network; the loss receives the image indices.

    Both views go through backbone and neck as one batch, as in SimCLR. The loss gets the embeddings
    and ``sample_idx`` of the data samples, by which it finds the state of each image: any loss with
    ``forward(view1, view2, sample_idx)`` fits.

    In evaluation (``mode='predict'``) images come in one view, and the output of the backbone,
    averaged over the image, is put into ``data_sample.feature`` for ``mmrank.KNNMetric`` and
    ``mmrank.LinearProbeMetric``.

    Args:
        backbone: Config of the network that is learnt.
        loss: Config of the loss: ``mmrank.InfoNCELoss``, ``mmrank.ISogCLRLoss`` and others.
        neck: Config of the projector, such as mmpretrain's ``NonLinearNeck``; it is not used after
            training. None: averages over the image.
    """

    def __init__(
        self,
        backbone: dict,
        loss: dict,
        neck: dict | None = None,
        data_preprocessor: dict | Module | None = None,
        init_cfg: dict | list | None = None,
    ) -> None:
        if not isinstance(data_preprocessor, Module):
            # The host's default has no scope: any other default scope would not find it.
            data_preprocessor = {
                'type': 'mmpretrain.SelfSupDataPreprocessor',
                **(data_preprocessor or {}),
            }
        super().__init__(backbone, neck, data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.data_preprocessor.register_forward_pre_hook(_refuse_unstacked)
        # `loss` is a method of the host.
        self.loss_module = build_loss('loss', loss)

    def forward(
        self,
        inputs: Tensor | list[Tensor],
        data_samples: Sequence[DataSample] | None = None,
        mode: str = 'tensor',
    ):
        if mode == 'predict':
            return self.predict(inputs, data_samples)
        return super().forward(inputs, data_samples, mode)

    def loss(self, inputs: list[Tensor], data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """Loss of two views, (B, C, H, W) each; the B data samples have ``sample_idx``."""
        number = len(inputs) if isinstance(inputs, (list, tuple)) else 1
        if number != 2:
            raise ValueError(
                f"two views of each image are needed, got {number}; put dict(type='MultiView', "
                'num_views=[2], transforms=[...]) into the pipeline'
            )
        # On the host, where an index that does not fit is named.
        ids = ids_of(data_samples, 'sample_idx', torch.device('cpu'))
        feats = self.backbone(torch.cat(list(inputs)))
        if self.with_neck:
            feats = self.neck(feats)
        return dict(loss=self.loss_module(*_vectors(feats).chunk(2), ids))

    def predict(
        self, inputs: Tensor, data_samples: Sequence[DataSample] | None = None
    ) -> list[DataSample]:
        """Put ``feature``, (D,), of (B, C, H, W) images into the data samples, or into new ones."""
        if not isinstance(inputs, Tensor):
            raise UserError('evaluation needs one view of each image', 'leave MultiView out')
        feats = _vectors(self.backbone(inputs))
        if data_samples is None:
            data_samples = [DataSample() for _ in range(feats.size(0))]
        for sample, row in zip(data_samples, feats):
            sample.set_field(row, 'feature')
        return data_samples


def _refuse_unstacked(module: Module, args: tuple) -> None:
    """Refuse views that the data loader has left as lists of images."""
    batch = args[0] if args else None
    inputs = batch.get('inputs') if isinstance(batch, dict) else None
    if isinstance(inputs, (list, tuple)) and not all(isinstance(view, Tensor) for view in inputs):
        raise UserError(
            'the views of a batch are lists of single images: collate_fn of the data loader, or '
            'its default, has not stacked them. Fix: '
            "train_dataloader.collate_fn=dict(type='default_collate')"
        )


def _vectors(feats: Tensor | Sequence[Tensor]) -> Tensor:
    """(B, D) of the last stage, averaged over the image."""
    last = last_features(feats)
    return adaptive_avg_pool2d(last, 1).flatten(1) if last.dim() == 4 else last
