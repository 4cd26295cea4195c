r"""Losses of image search on stored features: a training takes a second, so twenty seeds do.

    python tools/research/retrieval/embedding_losses.py omniglot ARCHIVE.zip data/omniglot.pt
    python tools/research/few_positives.py features GROCERY data/grocery.pt
    python tools/research/retrieval/embedding_losses.py run PLAN.yaml tools/research/records

An embedding of two layers is trained on the features of an EfficientNet-Lite0 that stays as it is,
and searches images of classes that it has not seen. Products, or alphabets, of even number are for
choosing: a seed trains on two thirds of them and is measured on the rest. Odd numbers are for the
claim: a seed is measured on half of them, and trains on all others.

The plan: ``stage`` (``choose`` or ``claim``), ``seeds``, ``iterations``, ``rates``, ``data`` (by
name: ``file``, and ``apart``, the level of the labels that is split: 0 classes, 1 alphabets) and
``methods``. A method has a ``name`` and ``losses``, its trials, each with every one of ``rates``
(which may be its own); optionally ``batch`` (classes, images of each), ``memory`` (images of a
cross-batch memory) and ``sets``. With ``watch``, steps at which a training is looked at, the record
has :data:`CAUSES` in addition to the figures. ``STEM_SET.csv`` goes on where it was.
"""

import argparse
import itertools
import json
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lib.common.records import append_rows, current_commit, past_rows
from mmrank.errors import show_user_errors
from mmrank.functional import retrieval_metrics
from mmrank.losses import EmbeddingBatch, PMLLoss
from mmrank.losses.loss_type import build_loss
from mmrank.losses.unit_rows import unit_rows
from mmrank.state import CrossBatchMemory
from research.dense_losses import efficientnet

BATCH, WIDTH, LENGTH, VIEWS, SIZE, GRID, NEAR = (14, 4), 256, 64, 4, 64, 3, 5
FACTS = ('stage', 'method', 'seed', 'step', 'commit', 'seconds', 'settings')
FIGURES = ('mAP', 'MAP_at_R', 'recall@1')
#: Of the batch of a step: queries without a gradient; of the gradient of the positives, the share
#: of positives behind five negatives and more; of the negatives, the share of the five nearest; the
#: mean score of the negatives in the batch, whose spread over batches counts; AP in the batch, and
#: of all images of the classes that are trained.
CAUSES = ('idle', 'far_positives', 'near_negatives', 'negative_score', 'batch_AP', 'train_AP')


def omniglot_features(archive: Path, out: Path) -> None:
    """Store features of each drawing and of four that are turned and moved; character, alphabet."""
    from torchvision.transforms import InterpolationMode, RandomAffine

    with zipfile.ZipFile(archive) as opened:
        names = sorted(x for x in opened.namelist() if x.endswith('.png'))
        drawings = [np.array(Image.open(opened.open(x)).convert('L')) for x in names]
    ink = torch.from_numpy(255.0 - np.stack(drawings)).float()[:, None]
    levels = [[x.rsplit('/', 1)[0] for x in names], [x.split('/')[1] for x in names]]
    labels = [np.unique(level, return_inverse=True)[1] for level in levels]
    labels = torch.from_numpy(np.stack(labels, 1))
    change = RandomAffine(12, (0.06, 0.06), interpolation=InterpolationMode.BILINEAR)
    maps = efficientnet()

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        small = functional.interpolate(images, size=(SIZE, SIZE), mode='area')
        found = [maps(x.expand(-1, 3, -1, -1))[1] for x in small.split(64)]
        return functional.adaptive_avg_pool2d(torch.cat(found), GRID).flatten(1)

    torch.manual_seed(0)
    views = [features(torch.stack([change(x) for x in ink])) for _ in range(VIEWS)]
    train = dict(features=torch.stack(views, 1), labels=labels)
    torch.save(dict(train=train, test=dict(features=features(ink)[:, None], labels=labels)), out)


def split_classes(labels: Tensor, apart: int, stage: str, seed: int) -> tuple[Tensor, Tensor]:
    """Classes to train on, and classes to be measured on, of the (n, levels) labels."""
    units = labels[:, apart].unique()
    own = units[0::2] if stage == 'choose' else units[1::2]
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))
    tested = own[order[: max(len(own) // (3 if stage == 'choose' else 2), 1)]]
    used = own if stage == 'choose' else units
    trained = used[~torch.isin(used, tested)]
    return tuple(labels[torch.isin(labels[:, apart], x), 0].unique() for x in (trained, tested))


def parts_of(stored: dict, apart: int, stage: str, seed: int) -> tuple[Tensor, ...]:
    """Standardised (n, views, D) features and (n,) classes: trained ones, and the others."""
    train, test = stored['train'], stored['test']
    sets = split_classes(train['labels'], apart, stage, seed)
    kept = [torch.isin(x['labels'][:, 0], own) for x, own in zip((train, test), sets)]
    x, other = (part['features'][rows] for part, rows in zip((train, test), kept))
    classes = train['labels'][kept[0], 0].unique(return_inverse=True)[1]
    std, mean = torch.std_mean(x, (0, 1))
    std = std.clamp(min=0.01 * std.median().item())
    return (x - mean) / std, classes, (other - mean) / std, test['labels'][kept[1], 0]


class WatchedBatch(EmbeddingBatch):
    """A batch that keeps the scores which its losses have made of it, and d scores / d scores."""

    watched = None

    def scores(self) -> Tensor:
        found = super().scores()
        if self.watched is not None:
            found.retain_grad()
            self.watched.append((found, 1.0))
        return found


def watch_distances(loss: nn.Module, watched: list) -> None:
    """Keep the distances of the parts of pytorch-metric-learning, and d distances / d scores."""

    def keep(distance: nn.Module, _, matrix: Tensor) -> None:
        if matrix.requires_grad:
            power = distance.power
            slope = -power * matrix.detach().clamp(min=1e-6) ** (1 - 2 / power)
            matrix.retain_grad()
            watched.append((matrix, 1.0 if distance.is_inverted else slope))

    for part in loss.modules():
        if isinstance(part, PMLLoss) and part.proxy_classes is None:
            part.loss.distance.register_forward_hook(keep)


@torch.no_grad()
def causes(watched: list, batch: WatchedBatch) -> dict[str, float]:
    """The first five of :data:`CAUSES`, after backward."""
    batch.watched = None
    scores, positive, negative = batch.scores(), batch.is_positive(), batch.is_negative()
    slopes = [matrix.grad * slope for matrix, slope in watched if matrix.grad is not None]
    size = sum(slopes, torch.zeros_like(scores)).abs()
    mass = size.sum(1)
    above = scores[:, None, :] >= scores[:, :, None]
    ahead = (above & negative[:, None, :]).sum(2)
    far, near = positive & (ahead >= NEAR), negative & (ahead <= NEAR)
    found = retrieval_metrics(batch.queries, batch.query_labels).average_precision
    return dict(
        idle=float((mass <= 0.01 * mass.mean()).float().mean()),
        far_positives=float(size[far].sum() / size[positive].sum()),
        near_negatives=float(size[near].sum() / size[negative].sum()),
        negative_score=float(scores[negative].mean()),
        batch_AP=float(found.mean()),
    )


def draw(classes: list[Tensor], size: tuple[int, int], draws: torch.Generator) -> Tensor:
    """Rows of a batch of ``size``: classes, and images of each."""
    chosen = torch.randperm(len(classes), generator=draws)[: size[0]].tolist()
    own = [classes[x] for x in chosen]
    return torch.cat([x[torch.randperm(len(x), generator=draws)[: size[1]]] for x in own])


def train(trial: dict, seed: int, parts: tuple[Tensor, ...], plan: dict) -> Iterator[tuple]:
    """Train an embedding; the step and its figures at the steps to watch, or at the last."""
    x, y, other, labels = parts
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(1000 + seed)
    net = nn.Sequential(nn.Linear(x.size(2), WIDTH), nn.ReLU(), nn.Linear(WIDTH, LENGTH))
    loss = build_loss('loss', trial['loss'], int(y.max()) + 1)
    if hasattr(loss, 'expect_cosines'):
        loss.expect_cosines()
    weights = [*net.parameters(), *loss.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=trial['rate'], weight_decay=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan['iterations'])
    size = tuple(trial.get('batch', BATCH))
    rows_of = [(y == c).nonzero()[:, 0] for c in range(int(y.max()) + 1)]
    memory = CrossBatchMemory(trial['memory'], LENGTH, 20) if 'memory' in trial else None
    watched = []
    if plan.get('watch'):
        watch_distances(loss, watched)
    for step in range(1, plan['iterations'] + 1):
        rows = draw(rows_of, size, draws)
        view = torch.randint(x.size(1), (len(rows),), generator=draws)
        queries = unit_rows(net(x[rows, view]))
        gallery, known = queries, y[rows]
        itself = torch.eye(len(rows), dtype=torch.bool)
        if memory is not None:
            past = memory.entries()
            again = (rows[:, None] == past.sample_ids) | ~past.usable
            gallery, known = torch.cat([gallery, past.embeddings]), torch.cat([known, past.labels])
            itself = torch.cat([itself, again], 1)
            memory.enqueue(queries.detach(), y[rows], rows)
        batch = WatchedBatch(queries, y[rows], gallery, known, itself)
        watched.clear()
        batch.watched = watched if step in plan.get('watch', ()) else None
        optimizer.zero_grad()
        loss.embedding_loss(batch).backward()
        optimizer.step()
        schedule.step()
        if step in plan.get('watch', [plan['iterations']]):
            with torch.no_grad():
                found = retrieval_metrics(net(other[:, 0]), labels).summary(recall_at=[1])
                figures = {name: found[name] for name in FIGURES}
                if batch.watched is not None:
                    own = retrieval_metrics(net(x[:, 0]), y).average_precision
                    figures |= causes(watched, batch) | dict(train_AP=float(own.mean()))
            yield step, figures


def trials_of(method: dict, plan: dict) -> list[dict]:
    """Every loss of a method with every rate."""
    more = {key: method[key] for key in ('batch', 'memory') if key in method}
    pairs = itertools.product(method['losses'], method.get('rates', plan['rates']))
    return [dict(loss=loss, rate=rate, **more) for loss, rate in pairs]


def run(plan_file: Path, out: Path) -> None:
    """Write the record of each set of a plan, seed by seed."""
    plan = yaml.safe_load(plan_file.read_text())
    columns = [*FACTS, *FIGURES, *(CAUSES if plan.get('watch') else ())]
    # What is looked at is not a trial of a setting.
    stage = 'tune' if plan['stage'] == 'choose' and not plan.get('watch') else 'final'
    commit = current_commit()
    for name, spec in plan['data'].items():
        stored = torch.load(spec['file'], weights_only=True)
        record = out / f'{plan_file.stem}_{name}.csv'
        past = past_rows(record, columns)
        done = {(row['method'], row['seed'], row['settings']) for row in past}
        methods = [x for x in plan['methods'] if name in x.get('sets', [name])]
        for seed in plan['seeds']:
            parts = parts_of(stored, spec['apart'], plan['stage'], seed)
            for method, trial in ((x, y) for x in methods for y in trials_of(x, plan)):
                settings = json.dumps(trial)
                if (method['name'], str(seed), settings) in done:
                    continue
                begin, rows = time.process_time(), []
                for step, figures in train(trial, seed, parts, plan):
                    seconds = f'{time.process_time() - begin:.1f}'
                    facts = (stage, method['name'], seed, step, commit, seconds, settings)
                    shown = {key: f'{value:.5f}' for key, value in figures.items()}
                    rows.append(dict(zip(FACTS, facts)) | shown)
                append_rows(record, rows, columns)
            print(name, seed, flush=True)


@show_user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('what', choices=['omniglot', 'run'])
    parser.add_argument('paths', nargs=2, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    (omniglot_features if args.what == 'omniglot' else run)(*args.paths)


if __name__ == '__main__':
    sys.exit(main())
