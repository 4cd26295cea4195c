"""Losses of image search on stored features: a training takes a second, so twenty seeds do.

An embedding of two layers is trained on the features of a network that stays as it is, and searches
images of classes that it has not seen. Products, or alphabets, of even number are for choosing: a
seed trains on two thirds of them and is measured on the rest. Odd numbers are for the claim: a seed
is measured on half of them, and trains on all others.

Trials use the classes for choosing, the other trainings those for the claim unless ``classes:
choosing``. Data: ``file`` (see features.py), and ``apart``, the level of the labels that is split
(0 classes, 1 alphabets). Methods: ``loss``, ``rate``, optionally ``batch`` (classes, images of
each), ``memory`` (images of a cross-batch memory), ``levels`` (true: the loss knows the coarse
classes, too) and ``anneal``: settings of the loss with their first and last value, geometric
between. For all ``iterations``; with ``watch``, steps at which a training is looked at, the record
has :data:`CAUSES` in addition to the figures; with ``level_figures: true`` H-AP and NDCG at ten.
"""

import copy
import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from mmrank.experiments.records import FINAL
from mmrank.functional import level_metrics, retrieval_metrics
from mmrank.losses import EmbeddingBatch, PMLLoss
from mmrank.losses.registered import build_loss
from mmrank.state import CrossBatchMemory
from mmrank.tensors import unit_rows
from plans.reader import Plan

BATCH = (14, 4)
WIDTH = 256
LENGTH = 64
NEAR = 5
FIGURES = ('mAP', 'MAP_at_R', 'recall@1')
LEVEL_FIGURES = ('H_AP', 'NDCG@10')
#: Steps between two values of a setting that is annealed.
PERIOD = 5
#: Of the batch of a step: queries without a gradient; of the gradient of the positives, the share
#: of positives behind five negatives and more; of the negatives, the share of the five nearest; the
#: mean score of the negatives in the batch, whose spread over batches counts; AP in the batch, and
#: of all images of the classes that are trained.
CAUSES = ('idle', 'far_positives', 'near_negatives', 'negative_score', 'batch_AP', 'train_AP')
MORE_FIGURES = {'level_figures': LEVEL_FIGURES, 'watch': CAUSES}


def prepare(plan: Plan) -> Callable[[bool, int], tuple[Tensor, ...]]:
    """:func:`parts_of` of the stored features; the parts of a seed are kept for all methods."""
    stored = torch.load(plan.fields['file'], weights_only=True)
    return functools.lru_cache(1)(functools.partial(parts_of, stored, plan.fields['apart']))


def split_classes(labels: Tensor, apart: int, is_claim: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Classes to train on, and classes to be measured on, of the (n, levels) labels."""
    units = labels[:, apart].unique()
    own = units[1::2] if is_claim else units[0::2]
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))
    tested = own[order[: max(len(own) // (2 if is_claim else 3), 1)]]
    used = units if is_claim else own
    trained = used[~torch.isin(used, tested)]
    return tuple(labels[torch.isin(labels[:, apart], x), 0].unique() for x in (trained, tested))


def parts_of(stored: dict, apart: int, is_claim: bool, seed: int) -> tuple[Tensor, ...]:
    """Standardised (n, views, D) features and (n, 2) classes, coarse first: trained, and others."""
    train = stored['train']
    test = stored['test']
    sets = split_classes(train['labels'], apart, is_claim, seed)
    kept = [torch.isin(x['labels'][:, 0], own) for x, own in zip((train, test), sets)]
    x, other = (part['features'][rows] for part, rows in zip((train, test), kept))
    levels = [part['labels'][rows].flip(1) for part, rows in zip((train, test), kept)]
    # Trained classes count from 0.
    known = levels[0][:, 1].unique(return_inverse=True)[1]
    classes = torch.stack([levels[0][:, 0], known], 1)
    std, mean = torch.std_mean(x, (0, 1))
    std = std.clamp(min=0.01 * std.median().item())
    return (x - mean) / std, classes, (other - mean) / std, levels[1]


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
    scores = batch.scores()
    positive = batch.is_positive()
    negative = batch.is_negative()
    slopes = [matrix.grad * slope for matrix, slope in watched if matrix.grad is not None]
    size = sum(slopes, torch.zeros_like(scores)).abs()
    mass = size.sum(1)
    above = scores[:, None, :] >= scores[:, :, None]
    ahead = (above & negative[:, None, :]).sum(2)
    far = positive & (ahead >= NEAR)
    near = negative & (ahead <= NEAR)
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


def annealed(trial: dict, share: float) -> dict:
    """The loss of a trial after a share of the training."""
    loss = copy.deepcopy(trial['loss'])
    for name, (first, last) in trial.get('anneal', {}).items():
        first = np.array(first)
        last = np.array(last)
        loss[name] = (first * (last / first) ** share).tolist()
    return loss


def figures_of(net: nn.Module, x: Tensor, levels: Tensor, settings: dict) -> dict[str, float]:
    """Figures of a search among (n, D) features with (n, 2) classes."""
    embeddings = net(x)
    found = retrieval_metrics(embeddings, levels[:, 1]).summary(recall_at=[1])
    figures = {name: found[name] for name in FIGURES}
    if settings.get('level_figures'):
        of_levels = level_metrics(embeddings, levels, ndcg_at=[10])
        found = (of_levels.hap.nanmean(), of_levels.ndcg[:, 0].nanmean())
        figures |= dict(zip(LEVEL_FIGURES, map(float, found)))
    return figures


def train(facts: dict, settings: dict, data: Callable) -> Iterator[tuple[int, dict[str, float]]]:
    """Train an embedding; the step and its figures at the steps to watch, or at the last."""
    seed = facts['seed']
    is_claim = facts['stage'] == FINAL and settings.get('classes') != 'choosing'
    x, levels, other, other_levels = data(is_claim, seed)
    y = levels[:, 1]
    labels = levels if settings.get('levels') else y
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(1000 + seed)
    net = nn.Sequential(nn.Linear(x.size(2), WIDTH), nn.ReLU(), nn.Linear(WIDTH, LENGTH))
    loss = built(annealed(settings, 0), y)
    weights = [*net.parameters(), *loss.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=settings['rate'], weight_decay=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings['iterations'])
    size = tuple(settings.get('batch', BATCH))
    rows_of = [(y == c).nonzero()[:, 0] for c in range(int(y.max()) + 1)]
    memory = CrossBatchMemory(settings['memory'], LENGTH, 20) if 'memory' in settings else None
    watched = []
    if settings.get('watch'):
        watch_distances(loss, watched)
    for step in range(1, settings['iterations'] + 1):
        if 'anneal' in settings and step % PERIOD == 0:
            state = loss.state_dict()
            loss = built(annealed(settings, step / settings['iterations']), y)
            loss.load_state_dict(state)
        rows = draw(rows_of, size, draws)
        view = torch.randint(x.size(1), (len(rows),), generator=draws)
        queries = unit_rows(net(x[rows, view]))
        gallery = queries
        known = labels[rows]
        itself = torch.eye(len(rows), dtype=torch.bool)
        if memory is not None:
            past = memory.entries()
            again = (rows[:, None] == past.sample_ids) | ~past.usable
            gallery = torch.cat([gallery, past.embeddings])
            known = torch.cat([known, past.labels])
            itself = torch.cat([itself, again], 1)
            memory.enqueue(queries.detach(), y[rows], rows)
        batch = WatchedBatch(queries, labels[rows], gallery, known, itself)
        watched.clear()
        batch.watched = watched if step in settings.get('watch', ()) else None
        optimizer.zero_grad()
        loss.embedding_loss(batch).backward()
        optimizer.step()
        schedule.step()
        if step in settings.get('watch', [settings['iterations']]):
            with torch.no_grad():
                figures = figures_of(net, other[:, 0], other_levels, settings)
                if batch.watched is not None:
                    own = retrieval_metrics(net(x[:, 0]), y).average_precision
                    figures |= causes(watched, batch) | dict(train_AP=float(own.mean()))
            yield step, figures


def built(loss: dict, y: Tensor) -> nn.Module:
    """A loss of cosines for the classes of y; proxies are as many as the classes."""
    loss = copy.deepcopy(loss)
    for part in loss.get('losses', [loss]):
        if 'num_classes' in part.get('loss', {}):
            part['loss']['num_classes'] = int(y.max()) + 1
    found = build_loss('loss', loss, int(y.max()) + 1)
    if hasattr(found, 'expect_cosines'):
        found.expect_cosines()
    return found
