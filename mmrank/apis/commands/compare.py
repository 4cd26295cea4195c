r"""Find the loss for your data, measured on your own detector and images, in minutes.

    mmrank compare my_config.py --checkpoint detector.pth --budget 20m \
        --losses own GradedAPLoss GradedAPLoss:loss_weight=0.3

It stores the features of your images once: the outputs of the backbone and, with --checkpoint, of
the neck. Then it trains the head of your config on them with each loss and several seeds, and
compares the losses on the validation data. The same command goes on after an interruption.

A loss is own, which is the loss of the config, or a name of docs/pages/losses.md. --out gets
winner.py, a config that trains the whole network on the recommended loss, and
trainings/report.md.
"""

import argparse
import copy
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from mmengine.config import Config
from rich.console import Console
from rich.progress import track

from mmrank.apis.common.command_line import digest_run, tool_parser
from mmrank.apis.common.folder_lock import lock_folder
from mmrank.apis.common.training_curves import read_scalars
from mmrank.apis.entry_point import add_trust_option, load, train_or_test_parser
from mmrank.apis.own_data.answer import answer
from mmrank.apis.own_data.head_losses import (
    OWN,
    frozen_parts,
    has_pretrained,
    loss_changes,
    parse_loss,
    stored_config,
    usual_name,
    winner_text,
)
from mmrank.apis.seeds.plan import Method, SeedPlan
from mmrank.apis.seeds.report import report
from mmrank.apis.seeds.runs import work_off
from mmrank.apis.seeds.statistics import collect_values
from mmrank.errors import UserError
from mmrank.files import read_text, remove_path, write_atomically

# Steps of the trial, of which the last ones are timed; of a comparison; and seeds.
TRIAL = 12
FEWEST_STEPS, MOST_STEPS = 50, 500
FEWEST_SEEDS, MOST_SEEDS = 3, 10


def _seconds_of(text: str) -> float:
    """Seconds of ``90s``, ``20m`` or ``2h``."""
    found = re.fullmatch(r'(\d+(?:\.\d+)?)([smh])', text)
    if found is None or float(found[1]) == 0:
        raise UserError(f'--budget {text} is not a time. Fix: 90s, 20m or 2h')
    return float(found[1]) * {'s': 1, 'm': 60, 'h': 3600}[found[2]]


def _read_user_config(args: argparse.Namespace) -> Config:
    """The user's config, as mmrank train reads it."""
    words = [args.config, '--work-dir', str(args.out)]
    if args.trust_checkpoint:
        words.append('--trust-checkpoint')
    cfg = load(train_or_test_parser().parse_args(words))
    for name in ('train_dataloader', 'val_dataloader', 'val_evaluator'):
        if cfg.get(name) is None:
            raise UserError(f'{args.config} has no {name}. Fix: training and validation data')
    return cfg


def store_features(cfg: Config, args: argparse.Namespace, folder: Path, parts: list[str]) -> None:
    """Store the outputs of the frozen parts for both splits; what is stored already stays."""
    import torch
    from mmengine.registry import DATASETS, MODELS, init_default_scope
    from mmengine.runner import Runner, load_checkpoint, set_random_seed

    from mmrank.apis.own_data.stored_features import write_samples

    folder.mkdir(parents=True, exist_ok=True)
    missing = [x for x in ('train', 'val') if not (folder / f'{x}.index').is_file()]
    if not missing:
        return
    init_default_scope(cfg.get('default_scope', 'mmengine'))
    set_random_seed(0)
    # A detector writes into its config, on which the folders of the trainings depend.
    model = MODELS.build(copy.deepcopy(cfg.model))
    model.init_weights()
    if args.checkpoint:
        load_checkpoint(model, args.checkpoint, map_location='cpu', revise_keys=[])
    model.eval()
    model.to('cuda' if torch.cuda.is_available() else 'cpu')

    @torch.no_grad()
    def frozen(batch: dict):
        data = model.data_preprocessor(batch, False)
        maps = data['inputs']
        for part in parts:
            maps = model.get_submodule(part)(maps)
        maps = (maps,) if isinstance(maps, torch.Tensor) else tuple(maps)
        return maps, data['data_samples'][0].cpu()

    for split in missing:
        loader = cfg[f'{split}_dataloader']
        dataset = DATASETS.build(loader.dataset)
        passes = args.views if split == 'train' else 1
        if split == 'train' and args.images is not None and args.images < len(dataset):
            chosen = torch.randperm(len(dataset)).tolist()[: args.images]
            dataset = dataset.get_subset(chosen)
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
        title = f'storing {split} features'
        batches = track(batches, title, total=passes * len(found), transient=True)
        write_samples(folder / split, batches, frozen, dataset.metainfo, args.disk)


def method_names(losses: list[str]) -> dict[str, str]:
    """A name that can be a folder for each loss."""
    return {re.sub(r'[^\w.+-]+', '_', text): text for text in losses}


def make_plan(
    cfg: Config, args: argparse.Namespace, folder: Path, parts: list[str], steps: int, seeds: int
) -> SeedPlan:
    """A config for each loss, and the plan that trains them."""
    methods = []
    for name, text in method_names(args.losses).items():
        path = args.out / 'configs' / f'{name}_{steps}.py'
        path.parent.mkdir(exist_ok=True)
        made = stored_config(cfg, text, folder, parts, steps)
        write_atomically(made.pretty_text.encode(), path)
        methods.append(Method(name, str(path)))
    return SeedPlan(
        out_dir=args.out / ('trial' if steps == TRIAL else 'trainings'),
        methods=tuple(methods),
        seeds=tuple(range(100, 100 + seeds)),
        metrics=(args.metric,) if args.metric else (),
        baseline=methods[0].name,
        # mmdet measures fractions, mmpretrain and mmrank percent.
        scale=100.0 if cfg.get('default_scope') == 'mmdet' else 1.0,
    )


def _try_out(console: Console, plan: SeedPlan) -> tuple[float, float, list[str]]:
    """Seconds of all losses together for a start with its evaluation, and a step; the metrics."""
    fixed = 0.0
    steps = 0.0
    for run in plan.final_runs():
        # A training of a killed comparison may still be at work: it keeps its folder.
        with lock_folder(run.folder):
            pass
    remove_path(plan.out_dir)  # an interrupted trial has no seconds
    outcomes = work_off(console, plan, plan.final_runs())
    for outcome in outcomes:
        if outcome.error:
            raise UserError(
                f'{outcome.run.method} does not train:\n{outcome.error}\nFix: what the log of '
                f'{outcome.run.folder} says, or leave that loss out'
            )
        # A trial that died was started once more.
        logs = outcome.run.folder.glob('*/vis_data/scalars.json')
        lines = read_scalars(max(logs, key=lambda x: x.stat().st_mtime))
        times = [line['time'] for line in lines if 'time' in line][TRIAL // 2 :]
        one = sum(times) / len(times)
        fixed += max(outcome.seconds - TRIAL * one, 0.0)
        steps += one
    return fixed, steps, [*outcomes[-1].metrics]


def _size_of(budget: float, fixed: float, step: float) -> tuple[int, int]:
    """Steps and seeds that the seconds of a budget give."""
    steps = int((budget / FEWEST_SEEDS - fixed) / step)
    if steps < FEWEST_STEPS:
        least = FEWEST_SEEDS * (fixed + FEWEST_STEPS * step) / 60
        raise UserError(
            f'--budget is too small for {FEWEST_SEEDS} seeds of {FEWEST_STEPS} steps. Fix: '
            f'--budget {least + 1:.0f}m, or fewer --losses'
        )
    steps = min(steps, MOST_STEPS)
    seeds = int(budget / (fixed + steps * step))
    return steps, max(min(seeds, MOST_SEEDS), FEWEST_SEEDS)


def _choose_metric(found: list[str], wanted: str | None) -> str:
    """The metric that is compared."""
    if wanted is not None and wanted not in found:
        raise UserError(f'--metric {wanted} is not measured. Fix: one of {", ".join(found)}')
    means = [name for name in found if name.endswith('mAP')]
    return wanted or (means or found)[0]


def _data_files(dataset: Mapping) -> Iterator[Path]:
    """Annotation file and folders of images of a data set of a config, and of those in it."""
    inner = dataset.get('datasets') or [dataset.get('dataset')]
    for one in filter(None, inner):
        yield from _data_files(one)
    prefix = dataset.get('data_prefix') or ''
    names = [*prefix.values()] if isinstance(prefix, Mapping) else [prefix]
    root = dataset.get('data_root') or ''
    for name in (dataset.get('ann_file') or '', *names):
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


def _read_trial(file: Path, losses: list[str]) -> tuple[float, float, list[str]] | None:
    """What an earlier trial of these losses has measured; None without one."""
    if not os.path.lexists(file):
        return None
    fix = 'remove it'
    try:
        known = json.loads(read_text(file, 'note', fix))
        if known['losses'] != losses:
            return None
        return float(known['fixed']), float(known['step']), [str(x) for x in known['metrics']]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f'{file} is damaged', fix) from error


def compare(args: argparse.Namespace, console: Console) -> int:
    """Store, try, train and answer; return the exit status."""
    cfg = _read_user_config(args)
    parts = frozen_parts(cfg.model, keeps_neck=bool(args.checkpoint))
    for text in args.losses:
        loss_changes(cfg.model, text)
    if not args.checkpoint and not has_pretrained(cfg.model):
        console.print(
            'warning: the backbone has random weights, so its features tell little. Fix: '
            '--checkpoint FILE, such as one of your own training',
            style='yellow',
        )
    folder = _features_folder(cfg, args)
    store_features(cfg, args, folder, parts)
    note = folder / 'trial.json'
    known = _read_trial(note, args.losses)
    if known is None:
        known = _try_out(console, make_plan(cfg, args, folder, parts, TRIAL, 1))
        written = dict(zip(('fixed', 'step', 'metrics'), known), losses=args.losses)
        write_atomically(json.dumps(written).encode(), note)
    fixed, step, metrics = known
    steps, seeds = _size_of(_seconds_of(args.budget), fixed, step)
    minutes = seeds * (fixed + steps * step) / 60
    console.print(
        f'{" and ".join(parts)} stored; {len(args.losses)} losses x {seeds} seeds x {steps} steps, '
        f'about {minutes:.0f} minutes.'
    )
    args.metric = _choose_metric(metrics, args.metric)
    plan = make_plan(cfg, args, folder, parts, steps, seeds)
    outcomes = work_off(console, plan, plan.final_runs())
    report(console, plan, outcomes, [], [])
    if any(outcome.error for outcome in outcomes):
        return 1
    texts = method_names(args.losses)
    usual = usual_name(cfg.model, texts)
    best, sentence = answer(collect_values(plan, outcomes), args.metric, usual)
    console.print(sentence, style='bold', markup=False, highlight=False)
    text = texts[best]
    changes = loss_changes(cfg.model, text)
    winner = args.out / 'winner.py'
    base = Path(args.config).resolve()
    write_atomically(winner_text(base, changes, text, sentence).encode(), winner)
    print(f'Next: mmrank train {winner}')
    return 0


def main() -> int:
    parser = tool_parser(
        __doc__,
        losses=[OWN, 'GradedAPLoss', 'RankSortLoss'],
        checkpoint=(None, 'weights of backbone and neck, such as a detector trained on COCO'),
        budget=('20m', 'time of the trainings: 90s, 20m or 2h'),
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
