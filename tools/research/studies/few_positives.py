"""Losses on classes with few positives in a batch: one layer on stored features of photographs.

Trials are measured on the validation photographs, fresh seeds on the test photographs.

Data: ``file`` (see features.py), ``labels`` (``fine``, or ``both`` levels), ``ratio`` of a longer
tail. Methods: ``loss`` and ``lr``. For all ``iterations``,
``evals`` (steps to measure on the way), ``batch_size`` and ``metrics`` of the record.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import mmrank.losses
from mmrank.experiments.records import TUNE
from mmrank.functional import average_precision, partial_auroc
from plans.reader import Plan
from plans.study_plan import loss_of

#: mAP over the classes by sigmoid and by softmax scores, and AP of all scores in one ranking.
FIGURES = ('mAP', 'exclusive_mAP', 'AP_of_all')
#: AUC over the classes: whole, FPR up to 0.05, and of it where the TPR is 0.5 and more.
PARTIAL = {
    'AUROC': {},
    'pAUC': {'max_fpr': 0.05},
    'two_way_pAUC': {'max_fpr': 0.05, 'min_tpr': 0.5},
}
#: Features (n, views, D) and labels (n, C) of 0 and 1 of each split.
Photographs = dict[str, tuple[Tensor, Tensor]]


def prepare(plan: Plan) -> Photographs:
    """Features and labels of the splits, the training split with the longer tail."""
    spec = plan.fields
    parts = {}
    for split, part in torch.load(spec['file'], weights_only=True).items():
        x = part['features']
        y = part['labels']
        if split == 'train' and 'ratio' in spec:
            kept = long_tail(y[:, 0], spec['ratio'])
            x = x[kept]
            y = y[kept]
        labels = one_hot(y[:, 0], 81)
        if spec['labels'] == 'both':
            labels = torch.cat([labels, one_hot(y[:, 1], 43)], 1)
        parts[split] = (x, labels)
    return parts


def long_tail(classes: Tensor, ratio: float) -> Tensor:
    """Rows of ``n_0 / ratio^(c / (C - 1))`` samples of the class of rank c, the first ones."""
    counts = classes.bincount()
    order = counts.argsort(descending=True, stable=True)
    kept = []
    for rank, label in enumerate(order.tolist()):
        number = counts.max().item() / ratio ** (rank / (len(counts) - 1))
        kept.append((classes == label).nonzero()[: max(round(number), 1), 0])
    return torch.cat(kept).sort().values


def batches(rows: int, size: int, seed: int) -> Iterator[Tensor]:
    """Endless passes in random order."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.empty(0, dtype=torch.long)
    while True:
        while len(left) < size:
            left = torch.cat([left, torch.randperm(rows, generator=generator)])
        yield left[:size]
        left = left[size:]


def build_loss(settings: dict, labels: Tensor) -> nn.Module:
    """A loss of mmrank with the counts of (n, C) labels."""
    options = dict(settings, num_classes=labels.size(1))
    if getattr(getattr(mmrank.losses, options['type']), 'keeps_samples', False):
        options['num_samples'] = len(labels)
    loss = loss_of(options)
    if getattr(loss, 'wants_class_counts', False):
        loss.set_class_counts(labels.sum(0).tolist(), len(labels))
    return loss


def train(facts: dict, settings: dict, data: Photographs) -> Iterator[tuple[int, dict[str, float]]]:
    """Train one layer; figures, in [0, 1], at the steps of ``evals`` and the last."""
    seed = facts['seed']
    steps = settings['iterations']
    x, y = data['train']
    torch.manual_seed(seed)
    layer = nn.Linear(x.size(2), y.size(1))
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.zeros_(layer.bias)
    loss = build_loss(settings['loss'], y)
    groups = [dict(params=layer.parameters(), weight_decay=0.01), dict(params=loss.parameters())]
    optimizer = torch.optim.AdamW(groups, lr=settings['lr'], weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    chosen = batches(len(x), settings['batch_size'], seed)
    for step in range(steps):
        if step == 3 * steps // 4 and hasattr(loss, 'start_reweighting'):
            loss.start_reweighting()
        index = next(chosen)
        view = torch.randint(x.size(1), (len(index),))
        target = y[index]
        if not getattr(loss, 'use_sigmoid', True):
            target = target.argmax(1)
        options = {'sample_idx': index} if getattr(loss, 'keeps_samples', False) else {}
        value = loss(layer(x[index, view]), target, **options)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        if step + 1 in (*settings.get('evals', ()), steps):
            shown, labels = data['val' if facts['stage'] == TUNE else 'test']
            with torch.no_grad():
                yield step + 1, figures(layer(shown[:, 0]), labels > 0)


def figures(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Macro figures of the scores, mAP of their softmax, and AP of all scores in one ranking."""
    classes = labels.any(0).nonzero()[:, 0]

    def macro(s: Tensor, figure=average_precision, **options) -> float:
        found = [figure(s[:, c], labels[:, c], **options) for c in classes]
        return float(torch.stack(found).mean())

    # The logarithm has fewer ties.
    exclusive = scores.double().log_softmax(1)
    return dict(
        mAP=macro(scores),
        exclusive_mAP=macro(exclusive),
        AP_of_all=float(average_precision(scores.flatten(), labels.flatten())),
        **{name: macro(scores, partial_auroc, **rates) for name, rates in PARTIAL.items()},
    )
