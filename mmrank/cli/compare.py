r"""Find the loss for your data, measured on your own detector and images, in minutes.

    mmrank compare my_config.py --checkpoint detector.pth --budget 20m \
        --losses own GradedAPLoss GradedAPLoss:loss_weight=0.3

It stores the features of your images once: the outputs of the backbone and, with --checkpoint, of
the neck. Then it trains the head of your config on them with each loss and several seeds, and
compares the losses on the validation data. The same command goes on after an interruption.

--budget is the time of all that. A trial on a few images says early whether it is enough. The
backbone needs trained weights: --checkpoint, or a config with ImageNet weights, such as new-config
--small writes.

A loss is own, which is the loss of the config, or a name of docs/pages/losses.md. --out gets
winner.py, a config that trains the whole network on the recommended loss, and
trainings/report.md.

exit status: 0 answered, 1 no loss has learnt anything, 2 an error.
"""

import argparse
import contextlib
import io
import json
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mmengine.config import Config
from rich.console import Console
from rich.progress import track

from mmrank.annotations.findings import config_datasets
from mmrank.cli.config_options import add_trust_option, load_config, train_or_test_parser
from mmrank.cli.draw.features import digest_run
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError
from mmrank.experiments.plan import Method, SeedPlan
from mmrank.experiments.report import report
from mmrank.experiments.runs import Outcome, say, work_off
from mmrank.experiments.statistics import collect_values
from mmrank.files import read_text, remove_path, write_atomically
from mmrank.own_data.answer import answer
from mmrank.own_data.head_losses import (
    OWN,
    count_classes,
    frozen_parts,
    has_pretrained,
    loss_changes,
    parse_loss,
    stored_config,
    usual_name,
    winner_text,
)
from mmrank.pictures.training_curves import read_scalars
from mmrank.runners.folder_lock import lock_folder

# Training images and steps of the trial, of which the last half is timed.
HANDFUL = 16
TRIAL = 12
# Steps and seeds of a comparison.
FEWEST_STEPS, MOST_STEPS = 50, 500
FEWEST_SEEDS, MOST_SEEDS = 3, 10
#: What is compared by default.
LOSSES = [OWN, 'GradedAPLoss', 'RankSortLoss']
#: Weights that are good enough.
CHECKPOINT = '--checkpoint FILE, a detector of your own or of COCO'
#: What the studies of this library found.
ONE_CLASS = (
    'With one class the lead of a ranking loss over quality focal is small or none '
    '(docs/pages/losses.md).'
)


def _seconds_of(text: str) -> float:
    """Seconds of ``90s``, ``20m`` or ``2h``."""
    found = re.fullmatch(r'(\d+(?:\.\d+)?)([smh])', text)
    if found is None or float(found[1]) == 0:
        raise UserError(f'--budget {text} is not a time. Fix: 90s, 20m or 2h')
    return float(found[1]) * {'s': 1, 'm': 60, 'h': 3600}[found[2]]


@contextlib.contextmanager
def _hush() -> Iterator[None]:
    """Leave out what the stock libraries print and warn about while they build."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        yield


def _bar(items: Iterable, title: str, total: int) -> Iterable:
    """Items behind a bar, which only a terminal shows."""
    return track(items, title, total, transient=True, disable=not sys.stdout.isatty())


def _read_user_config(args: argparse.Namespace) -> Config:
    """The user's config, as mmrank train reads it."""
    words = [args.config, '--work-dir', str(args.out)]
    if args.trust_checkpoint:
        words.append('--trust-checkpoint')
    with _hush():
        cfg = load_config(train_or_test_parser().parse_args(words))
    for name in ('train_dataloader', 'val_dataloader', 'val_evaluator'):
        if cfg.get(name) is None:
            raise UserError(f'{args.config} has no {name}. Fix: training and validation data')
    return cfg


def store_features(
    cfg: Config, args: argparse.Namespace, folder: Path, parts: list[str], *names: str
) -> float:
    """Store the outputs of the frozen parts for ``val``, ``train`` or a ``trial`` of its images.

    What is stored already stays, but for the trial.

    Returns:
        Seconds that all training images take, by the last of the names.
    """
    import torch
    from mmengine.logging import MMLogger
    from mmengine.registry import DATASETS
    from mmengine.runner import Runner, load_checkpoint, set_random_seed

    from mmrank.own_data.stored_features import write_samples
    from mmrank.runners.models import build_model

    names = [x for x in names if x == 'trial' or not (folder / f'{x}.index').is_file()]
    if not names:
        return 0.0
    folder.mkdir(parents=True, exist_ok=True)
    # mmengine logs each tensor to the newest logger; only what a checkpoint lacks matters.
    logger = MMLogger.get_instance(str(folder))
    logger.addFilter(lambda x: re.search('missing keys|size mismatch', x.getMessage()) is not None)
    set_random_seed(0)
    with _hush():
        model = build_model(cfg)
        model.init_weights()
    if args.checkpoint:
        load_checkpoint(model, args.checkpoint, 'cpu', logger='current', revise_keys=[])
    model.eval()
    model.to('cuda' if torch.cuda.is_available() else 'cpu')

    @torch.no_grad()
    def frozen(batch: dict):
        starts.append(time.monotonic())
        data = model.data_preprocessor(batch, False)
        maps = data['inputs']
        for part in parts:
            maps = model.get_submodule(part)(maps)
        maps = (maps,) if isinstance(maps, torch.Tensor) else tuple(maps)
        return maps, data['data_samples'][0].cpu()

    for name in names:
        loader = cfg[f'{"val" if name == "val" else "train"}_dataloader']
        with _hush():
            dataset = DATASETS.build(loader.dataset)
        passes = args.views if name == 'train' else 1
        everything = args.views * min(args.images or len(dataset), len(dataset))
        limit = dict(val=None, trial=HANDFUL, train=args.images)[name] or len(dataset)
        if limit < len(dataset):
            dataset = dataset.get_subset(torch.randperm(len(dataset)).tolist()[:limit])
        found = Runner.build_dataloader(
            dict(
                batch_size=1,
                num_workers=loader.get('num_workers', 0),
                sampler=dict(type='DefaultSampler', shuffle=False),
                dataset=dataset,
                collate_fn=dict(type='pseudo_collate'),
            ),
            seed=0,
        )
        batches = (batch for _ in range(passes) for batch in found)
        total = passes * len(found)
        batches = _bar(batches, f'storing {name} features', total)
        starts = []
        write_samples(folder / name, batches, frozen, dataset.metainfo, args.disk)
    half = total // 2  # the first ones wait for the workers of the loader
    return everything * (time.monotonic() - starts[half]) / (total - half)


def method_names(losses: list[str]) -> dict[str, str]:
    """A name that can be a folder for each loss."""
    return {re.sub(r'[^\w.+-]+', '_', text): text for text in losses}


def make_plan(
    cfg: Config, args: argparse.Namespace, folder: Path, parts: list[str], steps: int, seeds: int
) -> SeedPlan:
    """A config for each loss, and the plan that trains them; the trial has the last loss alone."""
    images = 'train'
    losses = args.losses
    if steps == TRIAL:
        images = 'trial'
        losses = losses[-1:]
    methods = []
    for name, text in method_names(losses).items():
        path = args.out / 'configs' / f'{name}_{steps}.py'
        path.parent.mkdir(exist_ok=True)
        made = stored_config(cfg, text, folder, parts, steps, images)
        write_atomically(made.pretty_text.encode(), path)
        methods.append(Method(name, str(path)))
    return SeedPlan(
        out_dir=args.out / ('trial' if images == 'trial' else 'trainings'),
        methods=tuple(methods),
        seeds=tuple(range(100, 100 + seeds)),
        metrics=(args.metric,) if args.metric else (),
        baseline=methods[0].name,
        # mmdet measures fractions, mmpretrain and mmrank percent.
        scale=100.0 if cfg.get('default_scope') == 'mmdet' else 1.0,
    )


def _train(plan: SeedPlan, title: str) -> list[Outcome]:
    """Do all trainings, behind a bar; a UserError at the first one that fails."""
    outcomes = []
    runs = plan.final_runs()
    for run in _bar(runs, title, len(runs)):
        [outcome] = work_off(Console(quiet=True), plan, [run])
        if outcome.error:
            raise UserError(
                f'{run.method} does not train:\n{outcome.error}\nFix: what the log of '
                f'{run.folder} says, or leave that loss out'
            )
        outcomes.append(outcome)
    return outcomes


def _try_out(plan: SeedPlan) -> tuple[float, float, list[str]]:
    """Seconds of a training for its start and evaluation, and for a step; the metrics."""
    [run] = plan.final_runs()
    # A training of a killed comparison may still be at work: it keeps its folder.
    with lock_folder(run.folder):
        pass
    remove_path(plan.out_dir)  # an interrupted trial has no seconds
    [outcome] = _train(plan, 'trying a training')
    # A trial that died was started once more.
    logs = run.folder.glob('*/vis_data/scalars.json')
    lines = read_scalars(max(logs, key=lambda x: x.stat().st_mtime))
    times = [line['time'] for line in lines if 'time' in line][TRIAL // 2 :]
    step = sum(times) / len(times)
    return max(outcome.seconds - TRIAL * step, 0.0), step, [*outcome.metrics]


def _minutes_for(steps: int, before: float, fixed: float, step: float) -> int:
    """Minutes that are enough for the fewest seeds; see :func:`_size_of`."""
    return int((before + FEWEST_SEEDS * (fixed + steps * step)) / 60) + 1


def _size_of(budget: float, before: float, fixed: float, step: float) -> tuple[int, int]:
    """Steps and seeds of a budget.

    All are in seconds: ``before`` for what precedes the trainings, ``fixed`` for the starts and
    evaluations of a seed with all losses, and ``step`` for one step of it.
    """
    steps = int(((budget - before) / FEWEST_SEEDS - fixed) / step)
    if steps < FEWEST_STEPS:
        raise UserError(
            f'--budget is too small for {FEWEST_SEEDS} seeds of {FEWEST_STEPS} steps. Fix: '
            f'--budget {_minutes_for(FEWEST_STEPS, before, fixed, step)}m, or fewer --losses'
        )
    steps = min(steps, MOST_STEPS)
    seeds = int((budget - before) / (fixed + steps * step))
    return steps, max(min(seeds, MOST_SEEDS), FEWEST_SEEDS)


def _data_files(dataset: Mapping) -> Iterator[Path]:
    """Annotation file and folders of images of a data set of a config, and of those in it."""
    for _, one in config_datasets(dataset, ''):
        prefix = one.get('data_prefix') or ''
        names = [*prefix.values()] if isinstance(prefix, Mapping) else [prefix]
        root = one.get('data_root') or ''
        for name in (one.get('ann_file') or '', *names):
            if root or name:
                yield Path(root, name)


def _stamps(path: Path, out: Path) -> list[tuple]:
    """Name, size and time of a file, or of the files of a folder that are not in ``out``."""
    out = out.resolve()
    files = [x for x in (path, *path.rglob('*')) if x.is_file() and out not in x.resolve().parents]
    stats = [(str(x), x.stat()) for x in files]
    return sorted((name, x.st_size, x.st_mtime_ns) for name, x in stats)


def _features_folder(cfg: Config, args: argparse.Namespace) -> Path:
    """The folder of the features of a config, its weights and data, and of the options."""
    sets = cfg.train_dataloader.dataset, cfg.val_dataloader.dataset
    stamps = [_stamps(path, args.out) for dataset in sets for path in _data_files(dataset)]
    content = [cfg.to_dict(), args.images, args.views, stamps]
    return args.out / 'features' / digest_run(content, args.checkpoint, 'cpu')


def _read_trial(file: Path) -> tuple[float, float, float, list[str]] | None:
    """Seconds before the trainings, and what :func:`_try_out` found; None if it has not run."""
    if not os.path.lexists(file):
        return None
    fix = 'remove it'
    try:
        known = json.loads(read_text(file, 'note', fix))
        before, fixed, step = map(float, known['seconds'])
        return before, fixed, step, [str(x) for x in known['metrics']]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f'{file} is damaged', fix) from error


def compare(args: argparse.Namespace, console: Console) -> int:
    """Try, store, train and answer; return the exit status."""
    begin = time.monotonic()
    cfg = _read_user_config(args)
    if not args.checkpoint and not has_pretrained(cfg.model):
        raise UserError(
            f'{args.config} starts from random weights, whose features tell nothing about a loss. '
            f'Fix: {CHECKPOINT}; or ImageNet weights, as in the config of mmrank new-config --small'
        )
    parts = frozen_parts(cfg.model, keeps_neck=bool(args.checkpoint))
    if args.losses == LOSSES and f'mmrank.{LOSSES[1]}' in str(cfg.model):
        args.losses = ['QualityFocalLoss', *LOSSES[1:]]  # the config's own is the second
    for text in args.losses:
        loss_changes(cfg.model, text)
    folder = _features_folder(cfg, args)
    note = folder / 'trial.json'
    known = _read_trial(note)
    if known is None:
        storing = store_features(cfg, args, folder, parts, 'val', 'trial')
        fixed, step, metrics = _try_out(make_plan(cfg, args, folder, parts, TRIAL, 1))
        known = time.monotonic() - begin + storing, fixed, step, metrics
        write_atomically(json.dumps(dict(seconds=known[:3], metrics=metrics)).encode(), note)
    before, fixed, step, metrics = known
    seconds = before, len(args.losses) * fixed, len(args.losses) * step
    steps, seeds = _size_of(_seconds_of(args.budget), *seconds)
    means = [name for name in metrics if name.endswith('mAP')]
    args.metric = args.metric or (means or metrics)[0]
    if args.metric not in metrics:
        raise UserError(f'--metric {args.metric} is not measured. Fix: one of {", ".join(metrics)}')
    store_features(cfg, args, folder, parts, 'train')
    plan = make_plan(cfg, args, folder, parts, steps, seeds)
    title = f'training {len(args.losses)} losses x {seeds} seeds x {steps} steps'
    outcomes = _train(plan, title)
    text = report(Console(quiet=True), plan, outcomes, [], [])
    say(console, text.split('\n\n')[0])
    texts = method_names(args.losses)
    best, sentence = answer(
        collect_values(plan, outcomes), args.metric, usual_name(cfg.model, texts)
    )
    if best is None:
        longer = f'--budget {_minutes_for(MOST_STEPS, *seconds)}m, for {MOST_STEPS} steps; or '
        sentence += f' Fix: {longer if steps < MOST_STEPS else ""}{CHECKPOINT}'
    else:
        if count_classes(cfg.model) == 1:
            sentence += f' {ONE_CLASS}'
        winner = args.out / 'winner.py'
        base = Path(args.config).resolve()
        changes = loss_changes(cfg.model, texts[best])
        write_atomically(winner_text(base, changes, texts[best], sentence).encode(), winner)
        say(console, f'Next: mmrank train {winner}')
    console.print(sentence, style='bold', markup=False, highlight=False, soft_wrap=True)
    return int(best is None)


def main() -> int:
    parser = tool_parser(
        __doc__,
        losses=LOSSES,
        checkpoint=(None, 'weights of backbone and neck, such as a detector trained on COCO'),
        budget=('20m', 'time of all, storing and the trial too: 90s, 20m or 2h'),
        out=(None, 'folder (default: work_dirs/compare_<name of the config>)'),
        views=(2, 'random views of each image'),
        disk=(8.0, 'GB that stored features may take'),
        metric=(None, 'key of the metric (default: the first mAP of the evaluator)'),
    )
    parser.add_argument('config', help='your config, of mmdet or mmpretrain')
    images = 'this many training images at random (default: all)'
    parser.add_argument('--images', type=int, help=images)
    add_trust_option(parser)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.out = Path(args.out or f'work_dirs/compare_{Path(args.config).stem}')
    _seconds_of(args.budget)
    for text in args.losses:
        parse_loss(text)
    args.out.mkdir(parents=True, exist_ok=True)
    with lock_folder(args.out):
        return compare(args, Console())
