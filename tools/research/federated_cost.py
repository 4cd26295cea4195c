"""The cost of taking boxes that no one looked at for negatives, with and without the mask.

    python tools/research/federated_cost.py tools/research/federated.yaml

A linear one-vs-rest scorer ranks boxes of images. One class is rare, and its objects have one of
two looks. The images of the second look, which has a direction of its own, are neither annotated
nor verified for the class, as in LVIS. Where every box without an object is a negative, that
direction gets a negative weight and pulls the objects down in the test data; with the mask of
:mod:`mmrank.models.federated_annotations` what both looks share finds them.

The plan is one of ``tools/lib/common/training_plan.py``; its methods are :data:`ARMS`, its data
sets say whether the two looks are the same. A set has the record ``SET.csv``.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mmrank.errors import show_user_errors
from mmrank.functional.metrics.average_precision import average_precision
from mmrank.losses.loss_type import build_loss
from mmrank.models.federated_annotations import counted_scores, exhaustive_classes

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.training_plan import Record, TrainingPlan

CLASSES = 4
WIDTH = 10
BOXES = 12
RARE = 0
RARE_BOXES = 2
#: What the looks of the rare class have along the direction that it shares
#: and the one of the second look, in units of the noise.
_SHARED = 5
_OWN = 6
_LOOKS = ((3.0, 0.0), (4.0, 3.0))
#: What a training sees: 'all' annotations, or a federated data set's, with and without the
#: mask.
ARMS = ('all annotated', 'federated, masked', 'federated, not masked')
STEPS = 100
RATE = 0.05
COLUMNS = ('method', 'seed', 'step', 'commit', 'seconds', 'settings', 'rare', 'others')


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
    arm: str, seed: int, loss: Mapping, same_look: bool = False, steps: int = STEPS
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
    optimizer = torch.optim.Adam(scorer.parameters(), RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        criterion(scorer(train.features), target, weight).backward()
        optimizer.step()
    with torch.no_grad():
        scores = scorer(test.features)
    aps = [float(average_precision(scores[:, c], test.labels == c)) for c in range(CLASSES)]
    return aps[RARE], sum(aps[RARE + 1 :]) / (CLASSES - 1)


@show_user_errors(KeyError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('plan', type=Path)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/federated_cost'))
    args = parser.parse_args()
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    plan = TrainingPlan(args.plan)
    for name, spec in plan.data.items():
        record = Record(args.out / f'{name}.csv', COLUMNS)
        for facts, method in plan.missing(name, record):
            begin = time.process_time()
            rare, others = rare_class_ap(
                facts['method'], facts['seed'], method['loss'], spec['same_look']
            )
            seconds = f'{time.process_time() - begin:.1f}'
            shown = dict(rare=f'{rare:.5f}', others=f'{others:.5f}')
            record.add([dict(facts, step=STEPS, seconds=seconds, **shown)])
            print(name, facts['method'], facts['seed'], *shown.values(), flush=True)


if __name__ == '__main__':
    sys.exit(main())
