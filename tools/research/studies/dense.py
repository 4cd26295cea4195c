"""Losses of a dense head, 15 s of a core each, on stored features.

A head of one square anchor a place, with an FPN and the ATSS assigner, is trained from random
weights on the maps of an EfficientNet-Lite0 that stays as it is (ImageNet weights of
``mmrank[pretrained]``). Learning rate, schedule, batches and flips of a seed are the same for each
loss.

Data: COCO files of ``train`` and ``val`` and their ``images``, ``size`` (width, height) to which
images are fitted, ``anchor`` (side over stride), ``epochs`` and ``width`` (channels).
``classes`` are the names of the classes that are kept (default: all), ``merged`` makes all one.
``fastestdet`` is a file of weights that FastestDet learnt on COCO: its backbone then takes the
place of the EfficientNet. ``rare`` is the name of a class that is made six times rarer: a seed
trains on one sixth of the images that hold it, another sixth the next seed, and the record has the
AP of the class and of the others. Methods: ``loss`` (a registered loss), optionally ``rate``,
``balance_boxes``, ``last_weight`` (the weight of the class part falls to it), ``added_loss``,
``warm_up_loss`` (of the first third) and ``repeat_images`` (the threshold of ``repeated`` in
rare_class_files.py).
"""

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import box_iou, generalized_box_iou_loss, nms

from detectors.fastestdet import FastestDetBackbone
from images.features import efficientnet
from images.rare_class_files import kept_images, repeated
from mmrank.adapters.class_part import aligned_iou
from mmrank.losses.ranking.rank_sort import box_balance
from plans.reader import Plan
from plans.study_plan import loss_of

STRIDES = (8, 16, 32, 64)
BATCH = 8
RATE = 3e-3
WARMUP = 20
BOX_WEIGHT = 2.0
# Places of a level that are positive for an object at most, and detections of an image.
CANDIDATES = 9
SHOWN = 100
FIGURES = ('mAP', 'AP50', 'AP75')
MORE_FIGURES = {'rare': ('rare', 'others')}


def load(spec: dict, split: str) -> dict:
    """(N, H, W, 3) images, fitted to the size, with boxes and labels of each."""
    document = json.loads(Path(spec[split]).read_text())
    kept = [x for x in document['categories'] if x['name'] in spec.get('classes', [x['name']])]
    number = {c: i for i, c in enumerate(sorted(x['id'] for x in kept))}
    if spec.get('merged'):
        number = dict.fromkeys(number, 0)
    objects = {}
    for item in document['annotations']:
        if not item.get('iscrowd') and item['category_id'] in number:
            objects.setdefault(item['image_id'], []).append(item)
    width, height = spec['size']
    found = dict(images=[], boxes=[], labels=[], classes=max(number.values()) + 1)
    names = {x['name']: number[x['id']] for x in kept}
    found['rare'] = names[spec['rare']] if 'rare' in spec else None
    for image in document['images']:
        own = objects.get(image['id'], [])
        if split == 'train' and not own:
            continue
        folder = spec['images'].format(split=Path(spec[split]).stem)
        path = Path(folder) / image['file_name']
        pixels = cv2.imread(str(path))[..., ::-1]
        scale = min(width / pixels.shape[1], height / pixels.shape[0])
        size = round(pixels.shape[1] * scale), round(pixels.shape[0] * scale)
        canvas = torch.full((height, width, 3), 127, dtype=torch.uint8)
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        canvas[: size[1], : size[0]] = torch.from_numpy(cv2.resize(pixels, size, interpolation=how))
        boxes = torch.tensor([x['bbox'] for x in own]).float().reshape(-1, 4) * scale
        boxes[:, 2:] += boxes[:, :2]
        found['images'].append(canvas)
        found['boxes'].append(boxes)
        found['labels'].append(torch.tensor([number[x['category_id']] for x in own]).long())
    found['images'] = torch.stack(found['images'])
    return found


@torch.no_grad()
def features(images: Tensor, spec: dict) -> list[Tensor]:
    """Maps of strides 8, 16 and 32."""
    maps = efficientnet()
    if 'fastestdet' in spec:
        backbone = FastestDetBackbone(spec['fastestdet'])
        maps = lambda rgb: backbone(rgb.flip(1) / 255)  # noqa: E731  it takes BGR
    found = [maps(part.permute(0, 3, 1, 2).float()) for part in images.split(8)]
    return [torch.cat(level) for level in zip(*found)]


def anchors_of(spec: dict) -> list[Tensor]:
    """(places, 4) of each level."""
    found = []
    for stride in STRIDES:
        columns, rows = (torch.arange(math.ceil(x / stride)) * stride for x in spec['size'])
        y, x = torch.meshgrid(rows, columns, indexing='ij')
        centre = torch.stack([x, y], 2).float().reshape(-1, 2)
        half = torch.tensor(spec['anchor'] * stride) / 2
        found.append(torch.cat([centre - half, centre + half], 1))
    return found


def assign(levels: list[Tensor], boxes: Tensor, labels: Tensor, classes: int) -> tuple:
    """ATSS: (places,) labels, ``classes`` is background, and the (n_pos, 4) boxes."""
    anchors = torch.cat(levels)
    target = torch.full((len(anchors),), classes)
    if not len(boxes):
        return target, anchors.new_zeros(0, 4)
    overlap = box_iou(anchors, boxes)
    centre = (anchors[:, :2] + anchors[:, 2:]) / 2
    distance = torch.cdist(centre, (boxes[:, :2] + boxes[:, 2:]) / 2)
    near = []
    start = 0
    for level in levels:
        own = distance[start : start + len(level)]
        near.append(own.topk(min(CANDIDATES, len(own)), 0, largest=False).indices + start)
        start += len(level)
    near = torch.cat(near)
    own = overlap.gather(0, near)
    margin = torch.minimum(
        (centre[near] - boxes[:, :2]).amin(2), (boxes[:, 2:] - centre[near]).amin(2)
    )
    chosen = (own >= own.mean(0) + own.std(0)) & (margin > 0.01)
    best = torch.full_like(overlap, -1.0).scatter_(0, near, torch.where(chosen, own, -1.0))
    value, owner = best.max(1)
    target[value >= 0] = labels[owner[value >= 0]]
    return target, boxes[owner[value >= 0]]


def prepare(plan: Plan) -> tuple[dict, dict]:
    """Both splits with standardised maps, the training split with targets."""
    spec = plan.fields
    train = load(spec, 'train')
    val = load(spec, 'val')
    # The mirror images come after the others.
    train['images'] = torch.cat([train['images'], train['images'].flip(2)])
    flipped = [box.clone() for box in train['boxes']]
    for box in flipped:
        box[:, [0, 2]] = spec['size'][0] - box[:, [2, 0]]
    train['boxes'] += flipped
    train['labels'] *= 2
    for data in (train, val):
        data['maps'] = features(data.pop('images'), spec)
    for level, maps in enumerate(train['maps']):
        mean = maps.mean((0, 2, 3), keepdim=True)
        std = maps.std((0, 2, 3), keepdim=True)
        # A channel that is silent on the training images has no deviation to divide by: other
        # images would show it thousands away, and a loss that fixes the level of scores fails.
        std = std.clamp(min=0.01 * std.median().item())
        for data in (train, val):
            data['maps'][level] = (data['maps'][level] - mean) / std
    levels = anchors_of(spec)
    train['targets'] = [
        assign(levels, boxes, labels, train['classes'])
        for boxes, labels in zip(train['boxes'], train['labels'])
    ]
    return train, val


class Head(nn.Module):
    """FPN and two branches: (N, places, C) scores and (N, places, 4) box codes by level."""

    def __init__(self, inputs: list[int], classes: int, width: int) -> None:
        super().__init__()
        self.classes = classes
        self.lateral = nn.ModuleList(nn.Conv2d(x, width, 1) for x in inputs)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in inputs)
        self.coarsest = nn.Conv2d(width, width, 3, 2, 1)
        self.tower_cls = nn.Conv2d(width, width, 3, padding=1)
        self.tower_box = nn.Conv2d(width, width, 3, padding=1)
        self.cls = nn.Conv2d(width, classes, 1)
        self.box = nn.Conv2d(width, 4, 1)
        for layer in [*self.lateral, *self.smooth, self.coarsest]:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        for layer, std in zip((self.tower_cls, self.tower_box, self.cls, self.box), (3, 3, 1, 1)):
            nn.init.normal_(layer.weight, std=std / 100)
            nn.init.zeros_(layer.bias)
        nn.init.constant_(self.cls.bias, -math.log(99.0))

    def forward(self, maps: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        x = [layer(y) for layer, y in zip(self.lateral, maps)]
        for i in (1, 0):
            x[i] = x[i] + functional.interpolate(x[i + 1], size=x[i].shape[-2:], mode='nearest')
        x = [layer(y) for layer, y in zip(self.smooth, x)]
        x.append(self.coarsest(x[-1]))
        branches = ((self.tower_cls, self.cls, self.classes), (self.tower_box, self.box, 4))
        return tuple(
            [last(tower(y).relu()).permute(0, 2, 3, 1).reshape(len(y), -1, channels) for y in x]
            for tower, last, channels in branches
        )


def decode(anchors: Tensor, codes: Tensor) -> Tensor:
    """Boxes of codes; both (..., 4)."""
    size = anchors[..., 2:] - anchors[..., :2]
    centre = (anchors[..., 2:] + anchors[..., :2]) / 2 + codes[..., :2] * size
    half = size * codes[..., 2:].clamp(-4, 4).exp() / 2
    return torch.cat([centre - half, centre + half], -1)


@torch.no_grad()
def evaluate(head: Head, data: dict, spec: dict) -> dict[str, float]:
    """mAP, AP50 and AP75, in [0, 1]; of the rare class and the others, too, if there is one."""
    from torchmetrics.detection import MeanAveragePrecision

    # Its own thresholds are float32, pycocotools' are these.
    steps = dict(iou_thresholds=(0.5, 0.95, 10), rec_thresholds=(0, 1, 101))
    exact = {name: np.linspace(*value).tolist() for name, value in steps.items()}
    rare = data['rare']
    options = dict(class_metrics=rare is not None, **exact)
    metric = MeanAveragePrecision(backend='faster_coco_eval', **options)
    levels = anchors_of(spec)
    width, height = spec['size']
    for start in range(0, len(data['boxes']), BATCH):
        scores, codes = head([x[start : start + BATCH] for x in data['maps']])
        for i in range(len(scores[0])):
            parts = []
            for score, code, anchors in zip(scores, codes, levels):
                value, index = score[i].flatten().topk(min(500, score[i].numel()))
                place = index // head.classes
                box = decode(anchors[place], code[i][place])
                parts.append((value, index % head.classes, box))
            value, label, box = (torch.cat(x) for x in zip(*parts))
            box[:, 0::2].clamp_(0, width)
            box[:, 1::2].clamp_(0, height)
            keep = nms(box + label[:, None] * 1000.0, value, 0.5)[:SHOWN]
            found = dict(boxes=box[keep], scores=value[keep], labels=label[keep])
            truth = dict(boxes=data['boxes'][start + i], labels=data['labels'][start + i])
            metric.update([found], [truth])
    found = metric.compute()
    figures = {key: float(found[x]) for key, x in zip(FIGURES, ('map', 'map_50', 'map_75'))}
    if rare is not None:
        own = dict(zip(found['classes'].tolist(), found['map_per_class'].tolist()))
        figures['rare'] = own.pop(rare)
        figures['others'] = sum(own.values()) / len(own)
    return figures


def value_of(loss: nn.Module, inputs: tuple, of_boxes: dict) -> Tensor | dict:
    """A loss of the class scores, with the values of the positives' boxes that it takes."""
    extra = {}
    if loss.box_input == 'quality':
        extra['quality'] = of_boxes['quality']
    elif loss.box_input == 'loss':
        extra['box_loss'] = of_boxes['loss']
    return loss(*inputs, avg_factor=len(inputs[0]), **extra)


def train(
    facts: dict, settings: dict, data: tuple[dict, dict]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a head from the random weights of a seed; its last step and figures."""
    seed = facts['seed']
    data, val = data
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(1000 + seed)
    number = len(data['targets']) // 2
    classes = data['classes']
    channels = [x.size(1) for x in data['maps']]
    head = Head(channels, classes, settings['width'])
    made = {
        key: loss_of(settings[key])
        for key in ('loss', 'warm_up_loss', 'added_loss')
        if key in settings
    }
    images = kept_images(data['labels'][:number], data['rare'], seed)
    counts = torch.cat([data['labels'][i] for i in images]).bincount(minlength=classes)
    for part in itertools.chain(*(loss.modules() for loss in made.values())):
        if getattr(part, 'wants_class_counts', False):
            part.set_class_counts(counts)
    rate = settings.get('rate', RATE)
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
    anchors = torch.cat(anchors_of(settings))
    order = []
    steps = len(images) // BATCH * settings['epochs']
    if 'repeat_images' in settings:
        images = repeated(images, data['labels'], settings['repeat_images'])
    for step in range(steps):
        if len(order) < BATCH:
            order = [images[i] for i in torch.randperm(len(images), generator=draw).tolist()]
        ids = order[:BATCH]
        order = order[BATCH:]
        ids = [i + number * int(torch.rand((), generator=draw) < 0.5) for i in ids]
        cosine = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group['lr'] = rate * min(1, 0.05 + 0.95 * step / WARMUP) * cosine
        scores, codes = (torch.cat(x, 1) for x in head([x[ids] for x in data['maps']]))
        target = torch.stack([data['targets'][i][0] for i in ids])
        truth = torch.cat([data['targets'][i][1] for i in ids])
        image, place = (target < classes).nonzero(as_tuple=True)
        boxes = decode(anchors[place], codes[image, place])
        errors = generalized_box_iou_loss(boxes, truth)
        of_boxes = dict(quality=aligned_iou(boxes.detach(), truth), loss=errors / 2)
        is_warm_up = 'warm_up_loss' in made and 3 * step < steps
        loss = made['warm_up_loss' if is_warm_up else 'loss']
        inputs = scores.reshape(-1, classes), target.flatten()
        found = value_of(loss, inputs, of_boxes)
        if not isinstance(found, dict):
            found = dict(cls=found, box=BOX_WEIGHT * errors.sum() / max(len(truth), 1))
            if settings.get('balance_boxes'):
                found['box'] = found['box'] * box_balance(*(x.detach() for x in found.values()))
            if 'added_loss' in made:
                found['added'] = value_of(made['added_loss'], inputs, of_boxes)
            if 'last_weight' in settings:
                found['cls'] = found['cls'] * settings['last_weight'] ** (step / steps)
        optimizer.zero_grad()
        sum(found.values()).backward()
        nn.utils.clip_grad_norm_(head.parameters(), 10.0)
        optimizer.step()
    yield steps, evaluate(head, val, settings)
