"""The cost of taking boxes that no one looked at for negatives.

A linear one-vs-rest scorer ranks boxes of images. One class is rare, and its objects have one of
two looks. The images of the second look, which has a direction of its own, are neither annotated
nor verified for the class, as in LVIS. Where every box without an object is a negative, that
direction gets a negative weight and pulls the objects down in the test data; with the mask of
:mod:`mmrank.models.federated_annotations` what both looks share finds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmrank.functional.metrics.average_precision import average_precision
from mmrank.losses.loss_type import build_loss
from mmrank.models.federated_annotations import counted_scores, exhaustive_classes

CLASSES, WIDTH, BOXES = 4, 10, 12
RARE, RARE_BOXES = 0, 2
#: What the looks of the rare class have along the direction that it shares
#: and the one of the second look, in units of the noise.
_SHARED, _OWN = 5, 6
_LOOKS = ((3.0, 0.0), (4.0, 3.0))
#: What a training sees: 'all' annotations, or a federated data set's, with and without the
#: mask.
ARMS = ('all annotated', 'federated, masked', 'federated, not masked')
STEPS = 100


@dataclass(frozen=True)
class BoxesOfImages:
    """Boxes of several images: true and annotated classes, C = background."""

    features: Tensor
    labels: Tensor
    annotated: Tensor
    images: Tensor
    metas: list[dict]


def make_boxes(
    generator: torch.Generator,
    num_images: int = 100,
    rare_images: int = 20,
    same_look: bool = False,
) -> BoxesOfImages:
    """Boxes of images, the rare class in the first ``rare_images`` of them."""
    images = torch.arange(num_images).repeat_interleave(BOXES)
    n = len(images)
    half = rare_images // 2
    frequent = torch.randint(1, CLASSES, (n,), generator=generator)
    is_object = torch.rand(n, generator=generator) < 0.5
    labels = torch.where(is_object, frequent, CLASSES)
    place = torch.arange(n) % BOXES
    is_rare = (images < rare_images) & (place < RARE_BOXES)
    labels[is_rare] = RARE
    of_class = 3 * torch.eye(WIDTH)[: CLASSES + 1]
    of_class[[RARE, CLASSES]] = 0
    features = torch.randn(n, WIDTH, generator=generator) + of_class[labels]
    second = is_rare & (images >= half)
    looks = _LOOKS[:1] * 2 if same_look else _LOOKS
    for rows, (shared, own) in zip((is_rare & ~second, second), looks):
        features[rows, _SHARED] += shared
        features[rows, _OWN] += own
    annotated = torch.where(second, CLASSES, labels)
    number = torch.arange(num_images)
    known = (number < half) | ((number >= rare_images) & (number % 5 == 0))
    others = list(range(1, CLASSES))
    metas = [
        dict(exhaustive_labels=[RARE, *others] if is_known else others)
        for is_known in known.tolist()
    ]
    return BoxesOfImages(features, labels, annotated, images, metas)


def rare_class_ap(
    arm: str,
    seed: int,
    loss: Mapping,
    same_look: bool = False,
    steps: int = STEPS,
    lr: float = 0.05,
) -> tuple[float, float]:
    """Train a scorer; return the AP of the rare class and the mean AP of the others, in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    train = make_boxes(generator, same_look=same_look)
    test = make_boxes(generator, 300, 60, same_look)
    scorer = nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        start = torch.randn(CLASSES, WIDTH, generator=generator)
        scorer.weight.copy_(0.01 * start)
        scorer.bias.zero_()
    target = train.labels if arm == ARMS[0] else train.annotated
    weight = None
    if arm == ARMS[1]:
        exhaustive = exhaustive_classes(train.metas, CLASSES, target.device, 'the scorer')
        weight = counted_scores(exhaustive, train.images, target, None)
    criterion = build_loss('loss', loss, CLASSES)
    optimizer = torch.optim.Adam(scorer.parameters(), lr)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(scorer(train.features), target, weight).backward()
        optimizer.step()
    with torch.no_grad():
        scores = scorer(test.features)
    aps = [float(average_precision(scores[:, c], test.labels == c)) for c in range(CLASSES)]
    return aps[RARE], sum(aps[RARE + 1 :]) / (CLASSES - 1)
