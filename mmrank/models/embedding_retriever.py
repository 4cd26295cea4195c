"""mmpretrain's image retriever, trained on how embeddings search."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from mmpretrain.models import ImageToImageRetriever
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.models.backbones.feature_mixup import FeatureMixupMixin
from mmrank.models.features import last_features
from mmrank.models.heads.retrieval_head import RetrievalHead
from mmrank.models.heads.sample_fields import labels_of
from mmrank.tensors import unit_rows


class EmbeddingRetriever(ImageToImageRetriever):
    """Retriever whose head sees labels, indices and mixed features.

    ``predict`` puts the embedding into ``data_sample.feature``, and ``mmrank.RetrievalMetric``
    searches.

    Args:
        image_encoder: Config of the encoder, or a list of configs that are run one after the other.
            Its output, or the last of a tuple, is (B, D).
        head: Config of ``mmrank.RetrievalHead``; None for a model that is not trained.
        freeze_bn: Batch norm layers of the encoder keep their running statistics and their weights,
            as in the papers, which start from pretrained weights. This includes the neck: set
            ``norm_cfg=None`` of ``LinearNeck``.
    """

    def __init__(
        self,
        image_encoder: dict | list[dict],
        head: dict | None = None,
        freeze_bn: bool = False,
        data_preprocessor: dict | None = None,
        init_cfg: dict | list | None = None,
    ) -> None:
        gallery = torch.empty(0)  # the host insists on one
        base = dict(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        super().__init__(image_encoder, gallery, head=head, **base)
        self.prototype = None
        self.freeze_bn = freeze_bn
        if freeze_bn:
            for layer in self._batch_norms():
                layer.requires_grad_(False)
            self.train(self.training)

    def train(self, mode: bool = True):
        super().train(mode)
        if self.freeze_bn:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def extract_feat(self, inputs: Tensor) -> Tensor:
        """(B, D) output of the encoder, before the head, for (B, C, H, W) images."""
        return last_features(super().extract_feat(inputs))

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        if self.head is None:
            what = 'the retriever has no head, which training requires'
            raise ValueError(f"{what}; set head=dict(type='mmrank.RetrievalHead', loss=...)")
        mixups = [m for m in self.image_encoder.modules() if isinstance(m, FeatureMixupMixin)]
        if not (mixups and self.training):
            return self.head.loss(self.extract_feat(inputs), data_samples)
        labels = labels_of(data_samples, None, inputs.device)
        copies = 1
        with ExitStack() as stack:
            for mixup in mixups:
                stack.enter_context(mixup.mixing(labels))
                copies *= mixup.copies
            feats = self.extract_feat(inputs)
        return self.head.loss(feats, data_samples, copies=copies)

    def predict(
        self, inputs: Tensor, data_samples: Sequence[DataSample] | None = None, **kwargs
    ) -> list[DataSample]:
        """Data samples, given or new, with their embedding ``feature``, (D,)."""
        feats = self.extract_feat(inputs)
        if data_samples is None:
            data_samples = [DataSample() for _ in range(feats.size(0))]
        embed = self.head if isinstance(self.head, RetrievalHead) else unit_rows
        embeddings = embed(feats)
        for sample, row in zip(data_samples, embeddings):
            sample.set_field(row, 'feature')
        return data_samples

    def _batch_norms(self) -> list[_BatchNorm]:
        return [m for m in self.image_encoder.modules() if isinstance(m, _BatchNorm)]
