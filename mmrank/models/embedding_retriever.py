"""mmpretrain's image retriever, trained on how embeddings search."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from mmpretrain.models import ImageToImageRetriever
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from mmrank.losses.unit_rows import unit_rows
from mmrank.models.backbones.feature_mixup import FeatureMixupMixin
from mmrank.models.features import last_features
from mmrank.models.heads.retrieval_head import RetrievalHead
from mmrank.models.heads.sample_fields import labels_of


def cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    """(N, M) cosines of (N, D) and (M, D) floats, as one matrix product.

    mmpretrain's broadcasts to (N, M, D): 8 GB for 64 queries of length 512 in a gallery of 60,000.
    """
    return normalize(a, dim=1) @ normalize(b, dim=1).t()


class EmbeddingRetriever(ImageToImageRetriever):
    """Retriever whose head sees labels, indices and mixed features.

    Two uses, which go together:

    * Same-set retrieval, the benchmarks' protocol. ``predict`` puts the embedding into
      ``data_sample.feature``, and ``mmrank.RetrievalMetric`` searches.
    * A fixed gallery: with the attribute ``prototype``, a data loader, a tensor or the path of one,
      ``predict`` also sets ``pred_score`` (M,) and ``pred_label`` as mmpretrain's retriever does.
      Its ``ImageRetrievalInferencer`` sets it.

    Args:
        image_encoder: Config of the encoder, or a list of configs that are run one after the other.
            Its output, or the last of a tuple, is (B, D).
        head: Config of ``mmrank.RetrievalHead``; None for a model that is not trained.
        freeze_bn: Batch norm layers of the encoder keep their running statistics and their weights,
            as in the papers, which start from pretrained weights. This includes the neck: set
            ``norm_cfg=None`` of ``LinearNeck``.
        train_cfg: Not supported, see below.
    """

    def __init__(
        self,
        image_encoder: dict | list[dict],
        head: dict | None = None,
        freeze_bn: bool = False,
        train_cfg: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | list | None = None,
    ) -> None:
        if train_cfg:
            raise ValueError(
                f'train_cfg={train_cfg!r}: batch augmentations mix classes, which a retrieval loss '
                "does not support; remove it, or use type='mmrank.DeepFeatureMixup'"
            )
        super().__init__(
            image_encoder,
            torch.empty(0),  # the host insists on a gallery
            head=head,
            similarity_fn=cosine_similarity,
            data_preprocessor=data_preprocessor,
            init_cfg=init_cfg,
        )
        self.prototype: DataLoader | str | Tensor | None = None
        self.freeze_bn = freeze_bn
        if freeze_bn:
            for layer in self._batch_norms():
                layer.requires_grad_(False)
            self.train(self.training)

    def train(self, mode: bool = True):
        """Set the mode; frozen batch norm layers stay in evaluation."""
        super().train(mode)
        if self.freeze_bn:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def extract_feat(self, inputs: Tensor) -> Tensor:
        """(B, D) output of the encoder, before the head, for (B, C, H, W) images."""
        return last_features(super().extract_feat(inputs))

    def loss(self, inputs: Tensor, data_samples: Sequence[DataSample]) -> dict[str, Tensor]:
        """Losses of the head for (B, C, H, W) images."""
        if self.head is None:
            raise ValueError(
                'the retriever has no head, which training requires; set '
                "head=dict(type='mmrank.RetrievalHead', loss=...)"
            )
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
        """Data samples, given or new, with their embedding ``feature``, (D,), and matches."""
        if self.prototype is not None and not self.prototype_inited:
            self.prepare_prototype()
        feats = self.extract_feat(inputs)
        if data_samples is None:
            data_samples = [DataSample() for _ in range(feats.size(0))]
        if self.prototype is not None:
            data_samples = self._get_predictions(self.matching(feats), data_samples)
        embed = self.head if isinstance(self.head, RetrievalHead) else unit_rows
        embeddings = embed(feats)
        for sample, row in zip(data_samples, embeddings):
            sample.set_field(row, 'feature')
        return data_samples

    def prepare_prototype(self) -> None:
        """Embed the gallery, if there is one, in evaluation mode."""
        if self.prototype is None:
            return
        training = self.training
        super().prepare_prototype()
        # The host leaves a model that embedded a data loader in evaluation.
        self.train(training)

    def _batch_norms(self) -> list[_BatchNorm]:
        return [m for m in self.image_encoder.modules() if isinstance(m, _BatchNorm)]
