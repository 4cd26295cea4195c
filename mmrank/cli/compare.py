r"""Train your detector or classifier with several losses, and compare them.

    mmrank compare my_config.py --losses own GradedAPLoss RankSortLoss

Each loss is trained whole, as mmrank train does it, once for each seed, and measured on the
validation data of the config. own is the loss of the config; another one is a name of
docs/pages/losses.md, perhaps with settings: GradedAPLoss:loss_weight=0.3. --epochs shortens the
trainings and their schedules of the learning rate.

The same command goes on after an interruption. What has finished is kept as long as the config and
all files that it reads stay as they are.

--out gets trainings/report.md, boxplot.png and runs.csv, and winner.py, a config with the best
loss.

exit status: 0 answered, 1 a training failed or no loss has learnt anything, 2 an error.
"""

import argparse
import dataclasses
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmengine.config import Config
from rich.console import Console

from mmrank.cli.options import parse_at_least, tool_parser
from mmrank.errors import UserError
from mmrank.experiments.loss_changes import (
    OWN,
    config_text,
    loss_changes,
    moved_outputs,
    parse_loss,
    resumable,
    shorter_schedule,
)
from mmrank.experiments.plan import Comparison, Method
from mmrank.experiments.report import report
from mmrank.experiments.runs import Outcome, say, work_off
from mmrank.experiments.statistics import collect_values, verdict
from mmrank.files import write_atomically
from mmrank.runners.config import read_config
from mmrank.runners.folder_lock import lock_folder

#: What is compared by default.
LOSSES = [OWN, 'GradedAPLoss', 'RankSortLoss']
#: Percent that the best mean reaches at least where something was learnt.
LEAST_MEAN = 1.0


def make_plan(args: argparse.Namespace, cfg: Config) -> Comparison:
    """The plan of all trainings; writes a config for each loss."""
    length = {} if args.epochs is None else shorter_schedule(cfg, args.epochs)
    methods = []
    for text in args.losses:
        name = re.sub(r'[^\w.+-]+', '_', text)
        path = args.out / 'configs' / f'{name}.py'
        changes = {'model': loss_changes(cfg.model, text), **length, **resumable(cfg)}
        # The files of a training of the config itself stay as they are.
        prefix = str(args.out / 'trainings' / name / 'val')
        changes['val_evaluator'] = moved_outputs(cfg.val_evaluator, prefix)
        write_atomically(config_text(args.config, changes, f'The loss: {text}').encode(), path)
        methods.append(Method(name, str(path)))
    return Comparison(
        args.out / 'trainings',
        tuple(methods),
        seeds=tuple(range(args.seeds)),
        metrics=(),
        baseline=methods[0].name,
        # mmdet measures fractions, mmpretrain and mmrank percent.
        scale=100.0 if cfg.get('default_scope') == 'mmdet' else 1.0,
    )


def choose_metric(outcomes: Sequence[Outcome]) -> tuple[str, list[Outcome]]:
    """The first mAP that a training has measured, and the outcomes; without it one has failed."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics or ())
    metric = next((name for name in names if name.endswith('mAP')), next(iter(names), ''))
    checked = []
    for outcome in outcomes:
        if not outcome.error and metric not in (outcome.metrics or ()):
            error = f'{metric} is not finite: the training has diverged. Fix: a lower rate'
            outcome = dataclasses.replace(outcome, metrics=None, error=error)
        checked.append(outcome)
    return metric, checked


def compare(args: argparse.Namespace, console: Console) -> int:
    """Train, compare and answer; return the exit status."""
    cfg = read_config(args.config)
    for name in ('train_dataloader', 'val_dataloader', 'val_evaluator'):
        if cfg.get(name) is None:
            raise UserError(f'{args.config} has no {name}. Fix: training and validation data')
    if args.losses == LOSSES and f'mmrank.{LOSSES[1]}' in str(cfg.model):
        args.losses = [OWN, 'QualityFocalLoss', LOSSES[2]]  # the second is its own
    plan = make_plan(args, cfg)
    metric, outcomes = choose_metric(work_off(console, plan.runs('val')))
    done = [outcome for outcome in outcomes if not outcome.error]
    if not done:
        return 1
    plan = dataclasses.replace(plan, metrics=(metric,))
    report(console, plan, outcomes)
    values = {name: own[metric] for name, own in collect_values(plan, outcomes).items()}
    best, sentence = verdict({name: own for name, own in values.items() if own})
    if np.mean([*values[best].values()]) < LEAST_MEAN:
        say(console, f'No loss has learnt anything: {metric} is below {LEAST_MEAN}.')
        say(console, 'Fix: more epochs, or weights to start from')
        return 1
    winner = args.out / 'winner.py'
    loss = dict(zip(values, args.losses))[best]
    changes = {'model': loss_changes(cfg.model, loss)}
    write_atomically(config_text(args.config, changes, sentence).encode(), winner)
    say(console, f'Next: mmrank train {winner}')
    console.print(sentence, style='bold', markup=False, highlight=False, soft_wrap=True)
    return int(len(done) < len(outcomes))


def main() -> int:
    parser = tool_parser(
        __doc__,
        losses=LOSSES,
        seeds=(3, 'trainings of each loss'),
        out=(None, 'folder (default: work_dirs/compare_<name of the config>)'),
    )
    parser.add_argument('config', help='your config, of mmdet or mmpretrain')
    parser.add_argument('--epochs', type=int, help='epochs of a training (default: the config)')
    args = parse_at_least(parser, seeds=1, epochs=1)
    # A termination is treated as an interrupt: the trainings end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.out = Path(args.out or f'work_dirs/compare_{Path(args.config).stem}')
    args.losses = [*dict.fromkeys(args.losses)]
    for text in args.losses:
        parse_loss(text)
    args.out.mkdir(parents=True, exist_ok=True)
    with lock_folder(args.out):
        return compare(args, Console())
