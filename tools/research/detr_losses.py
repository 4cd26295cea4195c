r"""Compare losses over seeds on a small RT-DETR or D-FINE of transformers, and show why.

    python tools/research/detr_losses.py tools/research/detr_losses.yaml --out work_dirs/detr

Each training has one thread. A CSV file of the plan's name gets a row for each evaluation, and a
plan that was stopped goes on where it was. Then come the table, each method paired by seed with the
first of the plan, and ``<plan>.png``. The table of the runs that are kept, without training:

    python tools/research/detr_losses.py PLAN --out tools/research/records

The plan has ``data`` (a folder of make_shapes_coco.py), ``seeds`` and ``methods``: ``name``,
``loss`` (a registered loss; without it the stock one), and optionally ``model`` (``rtdetr`` or
``dfine``), ``size`` of the images, ``steps``, ``evals``, ``lr``, ``anneal`` (the last half of the
steps brings the rate to 0), ``clip``, ``layers`` (another loss, or a
factor, for the rankings whose names begin so) and ``config`` (of the model). ``common`` holds for
all methods.

Columns beside mAP: ``as IoU`` is the mAP if the scores were the IoU of the boxes, so what the boxes
alone allow; ``best IoU`` of an object by any query; of as many highest scores as there are objects
the shares ``right``, ``twice`` (an object again), ``class``, ``place`` (IoU below 0.5) and ``none``
(below 0.1); ``order`` is the rank correlation of score and IoU of the matched queries; ``ratio`` is
the gradient norm of the class part over that of the box part in what both share, at the evaluation.
"""

import argparse
import csv
import json
import math
import multiprocessing
import subprocess
import sys
import time
import traceback
from functools import cache
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research.seeds.statistics import compare_paired

HEADS = ('class_embed', 'bbox_embed', 'enc_score_head', 'enc_bbox_head')
COLUMNS = {
    'mAP': 'map',
    'AP50': 'map_50',
    'AP75': 'map_75',
    'as IoU': 'oracle',
    'best IoU': 'best_iou',
    **{name: name for name in ('right', 'twice', 'class', 'place', 'none', 'order', 'ratio')},
}
BATCH = 8


@cache
def load_split(root: Path, split: str, size: int) -> list[tuple[Tensor, dict]]:
    """Pixels and labels of each image, as the models of transformers take them."""
    from torchvision.datasets import CocoDetection

    images = CocoDetection(root / split, root / 'annotations' / f'{split}.json')
    make = _processor(size)
    found = (
        make(x, annotations=dict(image_id=0, annotations=y), return_tensors='pt') for x, y in images
    )
    return [(x['pixel_values'], x['labels'][0]) for x in found]


def _processor(size: int = 128):
    from transformers import RTDetrImageProcessor

    return RTDetrImageProcessor(size=dict(height=size, width=size))


def build(kind: str, **config) -> nn.Module:
    """A detector of about a million parameters, from random weights."""
    import transformers as hf

    options = dict(
        freeze_backbone_batch_norms=False,
        encoder_in_channels=[64, 96, 128],
        encoder_hidden_dim=64,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        d_model=64,
        decoder_in_channels=[64] * 3,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        decoder_layers=2,
        num_queries=30,
        num_denoising=20,
    )
    if kind == 'rtdetr':
        options['backbone_config'] = hf.RTDetrResNetConfig(
            embedding_size=32,
            hidden_sizes=[32, 64, 96, 128],
            depths=[1] * 4,
            layer_type='basic',
            out_features=['stage2', 'stage3', 'stage4'],
        )
        return hf.RTDetrForObjectDetection(hf.RTDetrConfig(**{**options, **config}))
    if kind != 'dfine':
        raise SystemExit(f'model={kind!r} is unknown. Fix: rtdetr or dfine')
    options['backbone_config'] = hf.HGNetV2Config(
        hidden_sizes=[32, 64, 96, 128],
        stem_channels=[3, 16, 32],
        stage_in_channels=[32, 32, 64, 96],
        stage_mid_channels=[16, 16, 32, 32],
        stage_out_channels=[32, 64, 96, 128],
        stage_num_blocks=[1] * 4,
        stage_numb_of_layers=[2] * 4,
        stage_downsample=[False, True, True, True],
        stage_light_block=[False, False, True, True],
        stage_kernel_size=[3, 3, 5, 5],
        out_features=['stage2', 'stage3', 'stage4'],
    )
    return hf.DFineForObjectDetection(hf.DFineConfig(**{**options, **config}))


def use_losses(model: nn.Module, loss: dict | None, layers: dict) -> None:
    """Put the loss of a method into the model, and others into some of its layers."""
    from mmrank.adapters import use_ranking_loss
    from mmrank.registry import MODELS

    if loss is None:
        return
    use_ranking_loss(model, MODELS.build(dict(loss)))
    rankings = model.loss_function.rankings
    for start, other in layers.items():
        for name in [name for name in rankings if name.startswith(start)]:
            if isinstance(other, dict):
                rankings[name] = MODELS.build(dict(other))
            else:
                rankings[name].loss_weight = other


def gradient_ratio(model: nn.Module, parts: dict[str, Tensor]) -> float:
    """Norm of the class gradient over that of the box gradient, in the shared parameters."""
    shared = [
        p
        for name, p in model.named_parameters()
        if p.requires_grad and not any(head in name for head in HEADS)
    ]
    norms = []
    for is_class in (True, False):
        part = sum(v.sum() for k, v in parts.items() if ('vfl' in k or 'ranking' in k) == is_class)
        found = torch.autograd.grad(part, shared, retain_graph=True, allow_unused=True)
        norms.append(torch.stack([x.norm() for x in found if x is not None]).norm())
    return float(norms[0] / norms[1].clamp(min=1e-12))


def _corners(boxes: Tensor) -> Tensor:
    from torchvision.ops import box_convert

    return box_convert(boxes, 'cxcywh', 'xyxy')


@torch.no_grad()
def measure(model: nn.Module, data: list[tuple[Tensor, dict]]) -> dict[str, float]:
    """Metrics of the scores, of the boxes alone, and what the highest scores are."""
    from torchmetrics.detection import MeanAveragePrecision
    from torchvision.ops import box_iou
    from transformers.loss.loss_rt_detr import RTDetrHungarianMatcher
    from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

    model.eval()
    outputs = [model(torch.cat([x for x, _ in data[i : i + 30]])) for i in range(0, len(data), 30)]
    model.train()
    logits, boxes = (torch.cat([x[key] for x in outputs]) for key in ('logits', 'pred_boxes'))
    labels = [y for _, y in data]
    truth = [dict(boxes=_corners(y['boxes']), labels=y['class_labels']) for y in labels]
    ious = [box_iou(_corners(b), y['boxes']) for b, y in zip(boxes, truth)]

    def score(values: Tensor) -> dict[str, Tensor]:
        shown = RTDetrObjectDetectionOutput(logits=values, pred_boxes=boxes)
        return MeanAveragePrecision()(_processor().post_process_object_detection(shown, 0.0), truth)

    of_boxes = torch.full_like(logits, -30.0)
    for row, iou, y in zip(of_boxes, ious, labels):
        for name in y['class_labels'].unique():
            best = iou[:, y['class_labels'] == name].max(1).values
            row[:, name] = best.clamp(1e-4, 1 - 1e-4).logit()
    match = RTDetrHungarianMatcher(model.config)(dict(logits=logits, pred_boxes=boxes), labels)
    matched = [
        torch.stack([z[r, y['class_labels'][j]], iou[r, j]])
        for z, iou, y, (r, j) in zip(logits, ious, labels, match)
    ]
    found = score(logits)
    return dict(
        **{key: float(found[key]) for key in ('map', 'map_50', 'map_75')},
        oracle=float(score(of_boxes)['map']),
        best_iou=float(torch.cat([iou.max(0).values for iou in ious if iou.size(1)]).mean()),
        order=_rank_correlation(*torch.cat(matched, 1)),
        **_kinds(logits, ious, labels),
    )


def _rank_correlation(first: Tensor, second: Tensor) -> float:
    ranks = torch.stack([x.argsort().argsort().double() for x in (first, second)])
    return float(torch.corrcoef(ranks)[0, 1])


def _kinds(logits: Tensor, ious: list[Tensor], labels: list[dict]) -> dict[str, float]:
    """Shares of the n highest scores by what they are, of n objects."""
    number = sum(len(y['boxes']) for y in labels)
    kinds, seen = dict.fromkeys(('right', 'twice', 'class', 'place', 'none'), 0), set()
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


def train(method: dict, seed: int, data: Path) -> list[dict]:
    """Train once; returns a row for each evaluation."""
    torch.set_num_threads(1)
    steps = method.get('steps', 400)
    evals = {*method.get('evals', ()), steps}
    start = time.process_time()
    size = method.get('size', 128)
    images, held_out = (load_split(data, split, size) for split in ('train', 'val'))
    torch.manual_seed(seed)
    names = json.loads((data / 'annotations/train.json').read_text('utf-8'))['categories']
    config = dict(num_labels=max(x['id'] for x in names) + 1, **method.get('config', {}))
    model = build(method.get('model', 'rtdetr'), **config)
    use_losses(model, method.get('loss'), method.get('layers', {}))
    # Memory laid out so is 1.2 times as fast.
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=method.get('lr', 1e-3), fused=True)
    falls = steps if method.get('anneal') else math.inf
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, 2 * (1 - i / falls)))
    order = torch.Generator().manual_seed(1000 + seed)
    rows = []
    for step in range(1, steps + 1):
        batch = [images[i] for i in torch.randint(len(images), (BATCH,), generator=order)]
        optimizer.zero_grad()
        pixels = torch.cat([x for x, _ in batch]).contiguous(memory_format=torch.channels_last)
        out = model(pixels, labels=[y for _, y in batch])
        ratio = gradient_ratio(model, out.loss_dict) if step in evals else math.nan
        out.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), method.get('clip', 0.1))
        optimizer.step()
        schedule.step()
        if step in evals:
            found = dict(measure(model, held_out), ratio=ratio)
            found = {key: round(value, 5) for key, value in found.items()}
            settings = json.dumps({k: v for k, v in method.items() if k not in ('name', 'evals')})
            rows.append(
                dict(
                    name=method['name'],
                    seed=seed,
                    step=step,
                    **found,
                    seconds=round(time.process_time() - start),
                    commit=_commit(),
                    settings=settings,
                )
            )
    return rows


def _commit() -> str:
    command = ('git', '-C', str(Path(__file__).parent), 'rev-parse', '--short', 'HEAD')
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _train(job: tuple) -> tuple[str, list[dict]]:
    try:
        return '', train(*job)
    except Exception:
        return traceback.format_exc(), []


def read(file: Path) -> list[dict]:
    """Rows of the evaluations so far."""
    if not file.exists():
        return []
    kinds = dict(method=str, settings=str, commit=str, seed=int, step=int)
    with file.open(encoding='utf-8', newline='') as rows:
        return [{k: kinds.get(k, float)(v) for k, v in row.items()} for row in csv.DictReader(rows)]


def append(file: Path, rows: list[dict]) -> None:
    """Add the rows of a training."""
    new = not file.exists()
    with file.open('a', encoding='utf-8', newline='') as out:
        writer = csv.DictWriter(out, rows[0], lineterminator='\n')
        if new:
            writer.writeheader()
        writer.writerows(rows)


def show(rows: list[dict], names: list[str], picture: Path) -> None:
    """Print the table of the last step, and draw the mAP of each step."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot as plt

    last = max(row['step'] for row in rows)
    table = Table('loss', 'seeds', *COLUMNS, 'mAP beside the first (95 %)')
    values = {
        name: {r['seed']: r for r in rows if r['method'] == name and r['step'] == last}
        for name in names
    }
    figure, axes = plt.subplots(figsize=(6, 4), layout='constrained')
    for name in names:
        own = values[name]
        if not own:
            continue
        cells = [sum(r[key] for r in own.values()) / len(own) for key in COLUMNS.values()]
        scores = [{s: 100 * r['map'] for s, r in values[x].items()} for x in (name, names[0])]
        paired = compare_paired(*scores) if name != names[0] else {}
        text = ''
        if paired.get('pairs', 0) > 1:
            text = '{difference:+.1f} [{ci_low:+.1f}, {ci_high:+.1f}]'.format(**paired)
        table.add_row(name, str(len(own)), *(f'{x:.3f}' for x in cells), text)
        steps = sorted({r['step'] for r in rows if r['method'] == name})
        curve = [
            [100 * r['map'] for r in rows if (r['method'], r['step']) == (name, s)] for s in steps
        ]
        (line,) = axes.plot(steps, [sum(c) / len(c) for c in curve], marker='.', label=name)
        axes.fill_between(
            steps,
            [min(c) for c in curve],
            [max(c) for c in curve],
            color=line.get_color(),
            alpha=0.12,
        )
    axes.set(xlabel='step', ylabel='mAP (%), mean and range of the seeds')
    axes.legend()
    figure.savefig(picture, dpi=150)
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('plan', type=Path)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/detr_losses'))
    parser.add_argument('--workers', type=int, default=2, help='trainings at once (default: 2)')
    args = parser.parse_args()
    plan = yaml.safe_load(args.plan.read_text(encoding='utf-8'))
    methods = [{**plan.get('common', {}), **method} for method in plan['methods']]
    args.out.mkdir(parents=True, exist_ok=True)
    results = args.out / f'{args.plan.stem}.csv'
    rows = read(results)
    done = {(row['method'], row['seed'], row['step']) for row in rows}
    jobs = [
        (method, seed, Path(plan['data']))
        for seed in plan['seeds']
        for method in methods
        if (method['name'], seed, method.get('steps', 400)) not in done
    ]
    context, failed = multiprocessing.get_context('spawn'), 0
    with context.Pool(args.workers) as pool:
        for number, (error, new) in enumerate(pool.imap_unordered(_train, jobs), 1):
            if error:
                print(error, file=sys.stderr, flush=True)
                failed += 1
                continue
            append(results, new)
            rows += new
            row = new[-1]
            print(
                f'{number}/{len(jobs)} {row["method"]} seed {row["seed"]}: mAP {row["map"]:.3f}',
                file=sys.stderr,
                flush=True,
            )
    if rows:
        show(rows, [method['name'] for method in methods], results.with_suffix('.png'))
    if failed:
        sys.exit(f'{failed} of {len(jobs)} trainings failed, see above')


if __name__ == '__main__':
    main()
