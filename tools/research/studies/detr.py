"""Losses of a small RT-DETR or D-FINE (transformers), from random weights.

``data`` is a folder of make_shapes_coco.py. Methods: ``loss`` (by default the stock
one), ``model`` (``rtdetr`` or ``dfine``), ``size`` of the images, ``steps`` (the last half
brings the rate to 0) and ``evals`` (steps to measure on the way).

``as_IoU`` is the mAP if the scores were the IoU of the boxes, so what the boxes alone allow;
``best_IoU`` of an object by any query; of as many highest scores as there are objects the shares
``right``, ``twice`` (an object again), ``class``, ``place`` (IoU below 0.5) and ``none`` (below
0.1); ``order`` is the rank correlation of score and IoU of the matched queries; ``ratio`` is the
gradient norm of the class part over the box part's in what both share, at the evaluation.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from detectors.small_detrs import build
from mmrank.adapters.query_criterion import corners
from plans.reader import Plan

HEADS = ('class_embed', 'bbox_embed', 'enc_score_head', 'enc_bbox_head')
CLASS_PARTS = ('vfl', 'ranking')
FIGURES = ('mAP', 'AP50', 'AP75', 'as_IoU', 'best_IoU', 'order')
FIGURES += ('right', 'twice', 'class', 'place', 'none', 'ratio')
BATCH = 8
RATE = 1e-3
LARGEST_GRADIENT = 0.1


def prepare(plan: Plan) -> tuple[list, list, int]:
    """Pixels and labels of both splits, as transformers takes them, and the number of classes."""
    from torchvision.datasets import CocoDetection

    root = Path(plan.fields['data'])
    size = plan.fields['size']
    make = _processor(size)
    splits = []
    for name in ('train', 'val'):
        images = CocoDetection(root / name, root / 'annotations' / f'{name}.json')
        made = (
            make(x, annotations=dict(image_id=0, annotations=y), return_tensors='pt')
            for x, y in images
        )
        splits.append([(x['pixel_values'], x['labels'][0]) for x in made])
    categories = json.loads((root / 'annotations/train.json').read_text('utf-8'))['categories']
    return *splits, max(x['id'] for x in categories) + 1


def _processor(size: int = 128):
    from transformers import RTDetrImageProcessor

    return RTDetrImageProcessor(size=dict(height=size, width=size))


def gradient_ratio(model: nn.Module, parts: dict[str, Tensor]) -> float:
    """Norm of the class gradient over the norm of the box gradient, in the shared parameters."""
    shared = [
        p
        for name, p in model.named_parameters()
        if p.requires_grad and not any(head in name for head in HEADS)
    ]
    norms = []
    for is_class in (True, False):
        part = sum(
            v.sum() for k, v in parts.items() if any(x in k for x in CLASS_PARTS) == is_class
        )
        found = torch.autograd.grad(part, shared, retain_graph=True, allow_unused=True)
        norms.append(torch.stack([x.norm() for x in found if x is not None]).norm())
    return float(norms[0] / norms[1].clamp(min=1e-12))


@torch.no_grad()
def measure(model: nn.Module, data: list[tuple[Tensor, dict]]) -> dict[str, float]:
    """Metrics of the scores, of the boxes alone, and what the highest scores are."""
    from torchmetrics.detection import MeanAveragePrecision
    from torchvision.ops import box_iou
    from transformers import RTDetrConfig
    from transformers.loss.loss_rt_detr import RTDetrHungarianMatcher
    from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

    model.eval()
    outputs = [model(torch.cat([x for x, _ in data[i : i + 30]])) for i in range(0, len(data), 30)]
    model.train()
    logits, boxes = (torch.cat([x[key] for x in outputs]) for key in ('logits', 'pred_boxes'))
    labels = [y for _, y in data]
    truth = [dict(boxes=corners(y['boxes']), labels=y['class_labels']) for y in labels]
    ious = [box_iou(corners(b), y['boxes']) for b, y in zip(boxes, truth)]

    def score(values: Tensor) -> dict[str, Tensor]:
        shown = RTDetrObjectDetectionOutput(logits=values, pred_boxes=boxes)
        return MeanAveragePrecision()(_processor().post_process_object_detection(shown, 0.0), truth)

    of_boxes = torch.full_like(logits, -30.0)
    for row, iou, y in zip(of_boxes, ious, labels):
        for name in y['class_labels'].unique():
            best = iou[:, y['class_labels'] == name].max(1).values
            row[:, name] = best.clamp(1e-4, 1 - 1e-4).logit()
    match = RTDetrHungarianMatcher(RTDetrConfig())(dict(logits=logits, pred_boxes=boxes), labels)
    matched = [
        torch.stack([z[r, y['class_labels'][j]], iou[r, j]])
        for z, iou, y, (r, j) in zip(logits, ious, labels, match)
    ]
    found = score(logits)
    ranks = [x.argsort().argsort().double() for x in torch.cat(matched, 1)]
    return dict(
        mAP=float(found['map']),
        AP50=float(found['map_50']),
        AP75=float(found['map_75']),
        as_IoU=float(score(of_boxes)['map']),
        best_IoU=float(torch.cat([iou.max(0).values for iou in ious if iou.size(1)]).mean()),
        order=float(torch.corrcoef(torch.stack(ranks))[0, 1]),
        **kinds_of(logits, ious, labels),
    )


def kinds_of(logits: Tensor, ious: list[Tensor], labels: list[dict]) -> dict[str, float]:
    """Shares of the n highest scores by what they are, of n objects."""
    number = sum(len(y['boxes']) for y in labels)
    kinds = dict.fromkeys(('right', 'twice', 'class', 'place', 'none'), 0)
    seen = set()
    for at in logits.flatten().topk(number).indices.tolist():
        image, rest = divmod(at, logits[0].numel())
        query, name = divmod(rest, logits.size(2))
        iou = ious[image][query]
        own = iou * (labels[image]['class_labels'] == name)
        if len(iou) and own.max() >= 0.5:
            key = (image, int(own.argmax()))
            kinds['twice' if key in seen else 'right'] += 1
            seen.add(key)
        else:
            best = float(iou.max()) if len(iou) else 0.0
            kinds['class' if best >= 0.5 else 'place' if best >= 0.1 else 'none'] += 1
    return {key: count / number for key, count in kinds.items()}


def train(
    facts: dict, settings: dict, data: tuple[list, list, int]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train once; step and figures at ``evals`` and the end."""
    images, held_out, num_labels = data
    steps = settings['steps']
    torch.manual_seed(facts['seed'])
    model = build(settings, num_labels)
    # Memory laid out so is 1.2 times as fast.
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, 2 * (1 - i / steps)))
    order = torch.Generator().manual_seed(1000 + facts['seed'])
    for step in range(1, steps + 1):
        batch = [images[i] for i in torch.randint(len(images), (BATCH,), generator=order)]
        optimizer.zero_grad()
        pixels = torch.cat([x for x, _ in batch]).contiguous(memory_format=torch.channels_last)
        out = model(pixels, labels=[y for _, y in batch])
        is_measured = step in (*settings.get('evals', ()), steps)
        ratio = gradient_ratio(model, out.loss_dict) if is_measured else None
        out.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        if is_measured:
            yield step, dict(measure(model, held_out), ratio=ratio)
