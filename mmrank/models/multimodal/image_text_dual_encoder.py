"""An image encoder and a text encoder that embed into one space."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModel
from torch import Tensor, nn

from mmrank.losses.contrastive.base import unit_rows
from mmrank.models.grad_cache import GradCacheMixin
from mmrank.registry import MODELS

from .zero_shot_prompts import ZeroShotPrompts

#: Texts encoded at a time in evaluation.
_TEXTS = 512


@MODELS.register_module()
class ImageTextDualEncoder(GradCacheMixin, BaseModel):
    """Two encoders and a linear projection each, as in CLIP.

    In training a data sample has one ``text``, a string, and the fields that the head requires. In
    evaluation it may have none, one or a list of them.

    Args:
        image_encoder: Config of a backbone, or a list of configs that are run one after the other,
            such as a backbone and mmpretrain's ``GlobalAveragePooling``. Its output, or the last of
            a tuple, is (B, ``image_channels``).
        image_channels: Width of its output.
        text_encoder: Config of a module that turns a list of n strings into (n, ``out_channels``):
            ``mmrank.TextTransformer`` or ``mmrank.HuggingFaceTextEncoder``.
        embed_channels: Width D of the embeddings.
        head: Config of ``mmrank.ImageTextContrastHead`` or ``mmrank.ImageTextInBatchHead``; None
            for a model that is not trained.
        normalize: Scale embeddings to length 1.
        zero_shot: Arguments of :class:`ZeroShotPrompts`: ``classes`` and ``templates``. Evaluation
            then also classifies the images. None:
            it does not.
        data_preprocessor: Config of mmpretrain's ``ClsDataPreprocessor``; see mmengine's
            ``BaseModel``.
        init_cfg: See mmengine's ``BaseModel``.

    Example:
        >>> model = dict(
        ...     type='mmrank.ImageTextDualEncoder',
        ...     image_encoder=[
        ...         dict(type='mmpretrain.ResNet', depth=50),
        ...         dict(type='mmpretrain.GlobalAveragePooling')],
        ...     image_channels=2048,
        ...     text_encoder=dict(type='mmrank.TextTransformer'),
        ...     head=dict(type='mmrank.ImageTextContrastHead',
        ...               loss=dict(type='mmrank.CLIPLoss')))
    """

    def __init__(
        self,
        image_encoder: dict | list[dict],
        image_channels: int,
        text_encoder: dict,
        embed_channels: int = 256,
        head: dict | None = None,
        normalize: bool = True,
        zero_shot: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor, init_cfg)
        if isinstance(image_encoder, dict):
            image_encoder = [image_encoder]
        self.image_encoder = nn.ModuleList(map(MODELS.build, image_encoder))
        self.text_encoder = MODELS.build(text_encoder)
        self.image_channels, self.normalize = image_channels, normalize
        self.image_projection = nn.Linear(image_channels, embed_channels)
        self.text_projection = nn.Linear(self.text_encoder.out_channels, embed_channels)
        self.head = None if head is None else MODELS.build(head)
        self.prompts = None if zero_shot is None else ZeroShotPrompts(**zero_shot)
        self._class_rows = (None, None)

    def forward(self, inputs: Tensor, data_samples: Sequence | None = None, mode: str = 'tensor'):
        """Embed, compute the loss of, or evaluate a batch.

        Args:
            inputs: (B, C, H, W) images.
            data_samples: B data samples.
            mode: ``tensor``, ``loss`` or ``predict``.

        Returns:
            ``tensor``: (B, D) embeddings of the images. ``loss``: dict of losses. ``predict``: the
            data samples; see :meth:`predict`.

        Raises:
            ValueError: On an unknown mode.
        """
        if mode == 'tensor':
            return self.embed_images(inputs)
        if mode == 'loss':
            return self.loss(inputs, data_samples)
        if mode == 'predict':
            return self.predict(inputs, data_samples)
        raise ValueError(f"mode={mode!r} is unknown; use 'tensor', 'loss' or 'predict'")

    def train(self, mode: bool = True) -> 'ImageTextDualEncoder':
        """Switch the mode, and forget the embeddings of the classes."""
        # A hook that swaps averaged weights in does so unseen by versions.
        self._class_rows = (None, None)
        return super().train(mode)

    def embed_images(self, inputs: Tensor) -> Tensor:
        """Embed images.

        Args:
            inputs: (B, C, H, W).

        Returns:
            (B, D), at least float32; of length 1 with ``normalize``.

        Raises:
            ValueError: If the encoder returns another shape.
        """
        return self.embed_rows(self._embed_images, inputs)

    def _embed_images(self, inputs: Tensor) -> Tensor:
        feats = inputs
        for layer in self.image_encoder:
            feats = layer(feats)
        if isinstance(feats, (tuple, list)):
            feats = feats[-1]
        if feats.dim() != 2 or feats.size(1) != self.image_channels:
            raise ValueError(
                f'the image encoder must return features (images, {self.image_channels}), got '
                f'shape {tuple(feats.shape)}; set image_channels, or end image_encoder with '
                "dict(type='mmpretrain.GlobalAveragePooling')"
            )
        return self._finish(self.image_projection(feats))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts.

        Args:
            texts: n strings.

        Returns:
            (n, D), at least float32; of length 1 with ``normalize``.
        """
        return self.embed_rows(self._embed_texts, list(texts))

    def _embed_texts(self, texts: list[str]) -> Tensor:
        return self._finish(self.text_projection(self.text_encoder(texts)))

    def encoders(self) -> list[nn.Module]:
        """Those of images and texts, with their projections."""
        return [self.image_encoder, self.image_projection, self.text_encoder, self.text_projection]

    def loss(self, inputs: Tensor, data_samples: Sequence) -> dict[str, Tensor]:
        """Losses of a batch of pairs.

        Args:
            inputs: (B, C, H, W) images.
            data_samples: B data samples with ``text`` and what the head needs.

        Returns:
            The losses of the head.

        Raises:
            ValueError: If there is no head, or a sample has not one text.
        """
        if self.head is None:
            raise ValueError(
                'the model has no head, which training requires; set '
                "head=dict(type='mmrank.ImageTextContrastHead', loss=...)"
            )
        texts = [x.get('text') for x in data_samples]
        wrong = [x for x in texts if not isinstance(x, str)]
        if wrong:
            raise ValueError(
                f'{len(wrong)} of {len(texts)} data samples do not have one text but {wrong[0]!r}; '
                "keep it with PackInputs(algorithm_keys=['text']), and with several captions an "
                "image use unit='pair' of the data set or dict(type='mmrank.RandomCaption')"
            )
        read = self.head.read_samples(data_samples, inputs.device)
        images = self.embed_images(inputs)
        return self.head.loss(images, self.embed_texts(texts), *read)

    @torch.no_grad()
    def predict(self, inputs: Tensor, data_samples: Sequence) -> list:
        """Embed images and their texts, and classify the images.

        Args:
            inputs: (B, C, H, W) images.
            data_samples: B data samples, with ``text`` or without.

        Returns:
            The data samples with ``image_feature`` (D,); ``text_feature``
            (T, D), one row for each text, where there are any; and with ``zero_shot`` also
            ``pred_score`` (C,), the softmax of the similarities to the classes, and ``pred_label``
            (1,).
        """
        images = self.embed_images(inputs)
        texts = [_as_list(x.get('text')) for x in data_samples]
        joined = [text for own in texts for text in own]
        rows = self._embed_in_parts(joined) if joined else images[:0]
        rows = rows.split([len(own) for own in texts])
        for sample, image, own in zip(data_samples, images, rows):
            sample.set_field(image, 'image_feature')
            if len(own):
                sample.set_field(own, 'text_feature')
        if self.prompts is not None:
            scores = (images @ self._classes().t()).softmax(1)
            # Metrics take what is not positive for no prediction at all: neither similarities nor
            # an underflow would do.
            scores = scores.clamp(min=torch.finfo(scores.dtype).tiny)
            for sample, score in zip(data_samples, scores):
                sample.set_field(score, 'pred_score')
                sample.set_field(score.argmax()[None], 'pred_label')
        return list(data_samples)

    def _classes(self) -> Tensor:
        """(C, D) embeddings of the classes, kept while the weights stay."""
        parts = (self.text_encoder, self.text_projection)
        weights = [x for part in parts for x in part.parameters()]
        # Who writes a weight in place raises its version.
        state = [(id(x), x._version, x.device) for x in weights]
        if self.training or self._class_rows[0] != state:
            rows = self._embed_in_parts(self.prompts.texts)
            rows = self.prompts.class_rows(rows, self.normalize)
            self._class_rows = state, rows
        return self._class_rows[1]

    def _embed_in_parts(self, texts: list[str]) -> Tensor:
        parts = range(0, len(texts), _TEXTS)
        return torch.cat([self.embed_texts(texts[i : i + _TEXTS]) for i in parts])

    def _finish(self, rows: Tensor) -> Tensor:
        if self.normalize:
            return unit_rows(rows)
        return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _as_list(text: str | Sequence[str] | None) -> list[str]:
    if text is None:
        return []
    return [text] if isinstance(text, str) else list(text)
