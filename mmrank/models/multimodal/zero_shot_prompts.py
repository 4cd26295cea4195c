"""Texts that represent classes in zero-shot classification."""

from collections.abc import Sequence
from importlib import import_module

import torch
from mmengine.fileio import list_from_file
from torch import Tensor
from torch.nn.functional import normalize

#: Lists of names in mmpretrain's ``datasets.categories``.
_KNOWN = {
    'cifar10': 'CIFAR10_CATEGORIES',
    'cifar100': 'CIFAR100_CATEGORIES',
    'imagenet': 'IMAGENET_SIMPLE_CATEGORIES',
}


class ZeroShotPrompts:
    """Every class in every template.

    Args:
        classes: Names of the C classes in the order of their labels, or ``'cifar10'``,
            ``'cifar100'`` or ``'imagenet'`` for the names that mmpretrain has, or a ``.txt`` file
            with one a line. ``_`` in a
            name is a blank.
        templates: Texts with ``{}`` where the name goes.

    Attributes:
        classes: The names.
        texts: C x T texts, those of a class one behind the other.

    Raises:
        ValueError: If there are no classes or templates, or a template has
            not one ``{}``.

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
            if classes not in _KNOWN:
                raise ValueError(
                    f'classes={classes!r} is unknown; use one of '
                    f'{tuple(_KNOWN)}, a .txt file or a list of names'
                )
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
        self.templates = list(templates)
        self.texts = [
            template.replace('{}', name) for name in self.classes for template in self.templates
        ]

    def class_rows(self, rows: Tensor, unit: bool) -> Tensor:
        """Mean over the templates of each class.

        Source: Radford et al., ICML 2021, section 3.1.4: embeddings are made unit, averaged and
        made unit again.

        Args:
            rows: (C x T, D) embeddings of ``texts``.
            unit: Whether embeddings have length 1.

        Returns:
            (C, D).
        """
        rows = rows.view(len(self.classes), len(self.templates), -1)
        mean = torch.mean(rows, dim=1)
        return normalize(mean, dim=1) if unit else mean
