"""An image encoder and a text encoder that embed into one space."""

from collections.abc import Sequence
from importlib import import_module

import torch
from mmengine.fileio import list_from_file
from mmengine.model import BaseModel
from torch import Tensor, nn
from torch.nn.functional import normalize

from mmrank.models.features import feature_rows
from mmrank.registry import MODELS
from mmrank.settings import one_of
from mmrank.tensors import at_least_float32, unit_rows

#: Texts encoded at a time in evaluation.
_TEXTS = 512
#: Lists of names in mmpretrain's ``datasets.categories``.
_KNOWN = {
    'cifar10': 'CIFAR10_CATEGORIES',
    'cifar100': 'CIFAR100_CATEGORIES',
    'imagenet': 'IMAGENET_SIMPLE_CATEGORIES',
}


class ZeroShotPrompts:
    """Texts of classes in zero-shot classification: every class in every template.

    Args:
        classes: Names of the C classes in the order of their labels, or ``'cifar10'``,
            ``'cifar100'`` or ``'imagenet'`` for the names that mmpretrain has, or a ``.txt`` file
            with one a line. ``_`` in a name is a blank.
        templates: Texts with ``{}`` where the name goes.

    Example:
        >>> ZeroShotPrompts(['sea_lion', 'cat'], ['a {}.']).texts
        ['a sea lion.', 'a cat.']
    """

    def __init__(
        self, classes: str | Sequence[str], templates: Sequence[str] = ('a photo of a {}.',)
    ) -> None:
        if isinstance(classes, str) and classes.endswith('.txt'):
            classes = list_from_file(classes)
        elif isinstance(classes, str):
            one_of('classes', classes, _KNOWN)
            module = import_module('mmpretrain.datasets.categories')
            classes = getattr(module, _KNOWN[classes])
        if isinstance(templates, str):
            templates = [templates]
        wrong = [x for x in templates if x.count('{}') != 1]
        if wrong or not templates or not classes:
            raise ValueError(
                f'classes and templates must not be empty, and each template must have one {{}}, '
                f'got {len(classes)} classes and templates {wrong or list(templates)}'
            )
        self.classes = [x.replace('_', ' ') for x in classes]
        self.texts = [
            template.replace('{}', name) for name in self.classes for template in templates
        ]

    def class_rows(self, rows: Tensor, unit: bool) -> Tensor:
        """(C, D) means over the templates, of (C x T, D) embeddings of ``texts``.

        Source: Radford et al., ICML 2021, section 3.1.4: embeddings are made unit, averaged and,
        with ``unit``, made unit again.
        """
        mean = rows.view(len(self.classes), -1, rows.size(1)).mean(1)
        return normalize(mean, dim=1) if unit else mean


@MODELS.register_module()
class ImageTextDualEncoder(BaseModel):
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
            then also classifies the images. None: it does not.
        data_preprocessor: Config of mmpretrain's ``ClsDataPreprocessor``; see mmengine's
            ``BaseModel``.
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
        self.image_channels = image_channels
        self.normalize = normalize
        self.image_projection = nn.Linear(image_channels, embed_channels)
        self.text_projection = nn.Linear(self.text_encoder.out_channels, embed_channels)
        self.head = None if head is None else MODELS.build(head)
        self.set_zero_shot(zero_shot)

    def forward(self, inputs: Tensor, data_samples: Sequence | None = None, mode: str = 'tensor'):
        """Embed (``tensor``), compute the ``loss`` of, or ``predict`` (B, C, H, W) images."""
        one_of('mode', mode, ('tensor', 'loss', 'predict'))
        if mode == 'tensor':
            return self.embed_images(inputs)
        return getattr(self, mode)(inputs, data_samples)

    def train(self, mode: bool = True) -> 'ImageTextDualEncoder':
        # A hook that swaps averaged weights in does so unseen by versions.
        self._class_rows = (None, None)
        return super().train(mode)

    def set_zero_shot(self, zero_shot: dict | None) -> None:
        """Set the classes that evaluation tells, see ``zero_shot`` of the class."""
        self.prompts = None if zero_shot is None else ZeroShotPrompts(**zero_shot)
        self._class_rows = (None, None)

    def embed_images(self, inputs: Tensor) -> Tensor:
        """(B, D) embeddings, at least float32, of (B, C, H, W) images."""
        feats = inputs
        for layer in self.image_encoder:
            feats = layer(feats)
        rows = feature_rows(feats, self.image_channels, 'image_channels')
        return self._finish(self.image_projection(rows))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(n, D) embeddings, at least float32, of n strings."""
        return self._finish(self.text_projection(self.text_encoder(list(texts))))

    def loss(self, inputs: Tensor, data_samples: Sequence) -> dict[str, Tensor]:
        """Losses of pairs; data samples have ``text`` and the fields that the head reads."""
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
        return self.head.loss(self.embed_images(inputs), self.embed_texts(texts), data_samples)

    @torch.no_grad()
    def predict(self, inputs: Tensor, data_samples: Sequence) -> list:
        """The data samples with embeddings, and the classes of the images.

        ``image_feature`` is (D,); ``text_feature`` (T, D), one row for each ``text``, where there
        are any; with ``zero_shot`` there are also ``pred_score`` (C,), the softmax of the
        similarities to the classes, and ``pred_label`` (1,).
        """
        images = self.embed_images(inputs)
        texts = [x.get('text') or [] for x in data_samples]
        texts = [[x] if isinstance(x, str) else x for x in texts]
        joined = [text for own in texts for text in own]
        rows = self._embed_in_parts(joined) if joined else images[:0]
        rows = rows.split([len(own) for own in texts])
        for sample, image, own in zip(data_samples, images, rows):
            sample.set_field(image, 'image_feature')
            if len(own):
                sample.set_field(own, 'text_feature')
        if self.prompts is not None:
            scores = (images @ self._classes().t()).softmax(1)
            # Metrics take scores <= 0 for no prediction at all: neither similarities nor an
            # underflow would do.
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
        return unit_rows(rows) if self.normalize else at_least_float32(rows)
