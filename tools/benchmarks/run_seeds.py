"""Compare methods over seeds: train, tune, test, and report.

Each method (a config) is trained once per seed and evaluated on its test
data; the report has mean +- std per metric, the difference to a baseline
paired by seed with its 95 % confidence interval and a paired t-test, and a
box plot with the single seeds.

  Two configs, three seeds, two trainings at a time:
    python tools/benchmarks/run_seeds.py focal.py stable_ap.py \
        --seeds 0 1 2 --metrics coco/bbox_mAP coco/bbox_mAP_50 \
        --baseline focal --jobs 2 --out-dir work_dirs/bccd

  A learning rate tuned for each of them, on validation data and with other
  seeds; the best value of each is then trained with the fresh seeds 0 1 2
  and measured on test data only:
    python tools/benchmarks/run_seeds.py focal.py stable_ap.py \
        --tune optim_wrapper.optimizer.lr=1e-4,2e-4,4e-4 --tune-seeds 100 101 \
        --seeds 0 1 2 --metrics coco/bbox_mAP --out-dir work_dirs/bccd

  The same from a file, with names, own options and own grids:
    python tools/benchmarks/run_seeds.py --plan plan.yaml --jobs 2

    # plan.yaml
    out_dir: work_dirs/bccd
    seeds: [0, 1, 2]
    metrics: [coco/bbox_mAP, coco/bbox_mAP_50]
    baseline: focal            # default: the first method
    lower_better: []           # metrics of which less is better
    scale: 100                 # factor of the metrics in the report
    cfg_options: {train_cfg.max_epochs: 3}         # for all methods
    methods:
      - {name: focal, config: focal.py}
      - name: stable_ap
        config: stable_ap.py
        cfg_options: {model.bbox_head.loss_cls.tau: 1.0}
        tune: {optim_wrapper.optimizer.lr: [1e-4, 4e-4]}  # its own grid
    tune:                      # leave out to tune nothing
      grid: {optim_wrapper.optimizer.lr: [1e-4, 2e-4]}
      seeds: [100, 101]
      metric: coco/bbox_mAP    # default: the first of metrics

Many small trainings? --forked imports torch and OpenMMLab once and forks a
process per training, which saves some ten seconds of each.

Interrupted? Give the same command again: finished trainings are not repeated,
interrupted ones go on from their last whole checkpoint. A failed training is
reported with the end of its log while the others go on; the same command
tries it again. A changed config or option gets new folders, so a row never
mixes two versions.

Written to the out dir: report.md, summary.csv, runs.csv, boxplot.png.
"""

import argparse
import signal
import sys
from pathlib import Path

from rich.console import Console

from mmrank.evaluation.forked_command import preload_modules
from mmrank.evaluation.seed_console import report, work_off
from mmrank.evaluation.seed_outcome import Outcome
from mmrank.evaluation.seed_plan import PlanError, SeedPlan, load_config
from mmrank.evaluation.seed_plan_file import parse_plan, read_plan
from mmrank.evaluation.seed_runs import (
    RunQueue,
    build_command,
    count_cores,
    lock_folder,
)
from mmrank.evaluation.seed_tuning import check_splits, choose

HERE = Path(__file__).resolve().parent
TRAIN_COMMAND = (
    f'{{python}} "{HERE / "train_and_test.py"}" {{config}} '
    '--work-dir {work_dir} --split {split} --result {result} '
    '--cfg-options randomness.seed={seed} {cfg_options}'
)

# Imported once with --forked, as far as they are installed.
PRELOADED = (
    'mmengine.runner',
    'mmrank.models',
    'mmrank.datasets',
    'mmrank.engine.hooks',
    'mmrank.visualization',
)
SCOPED = ('models', 'datasets', 'evaluation', 'visualization')

# What a plan file says itself.
PLAN_ARGUMENTS = (
    'names',
    'seeds',
    'metrics',
    'lower_better',
    'baseline',
    'tune',
    'tune_seeds',
    'tune_metric',
    'cfg_options',
    'scale',
    'out_dir',
)


def parse_args(arguments=None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        'configs', nargs='*', help='config files, a method each'
    )
    parser.add_argument(
        '--plan', help='plan file (.yaml, .json, .py) instead of configs'
    )
    parser.add_argument(
        '--names', nargs='+', help='names of the configs (default: file names)'
    )
    parser.add_argument('--seeds', nargs='+', type=int, help='seeds to test')
    parser.add_argument(
        '--metrics', nargs='+', help='metric keys, for example coco/bbox_mAP'
    )
    parser.add_argument(
        '--lower-better',
        nargs='+',
        metavar='METRIC',
        help='metrics of which less is better',
    )
    parser.add_argument(
        '--baseline', help='name to test against (default: the first method)'
    )
    parser.add_argument(
        '--tune',
        action='append',
        metavar='KEY=V1,V2',
        help='tune this config key over these values, in ascending order; '
        'give it again for another key (all combinations are tried)',
    )
    parser.add_argument(
        '--tune-seeds', nargs='+', type=int, help='seeds of the tuning'
    )
    parser.add_argument(
        '--tune-metric', help='metric that decides (default: the first)'
    )
    parser.add_argument(
        '--allow-shared-split',
        action='store_true',
        help='tune even where the test data is the validation data',
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        metavar='KEY=VALUE',
        help='overrides for all configs',
    )
    parser.add_argument('--scale', type=float, help='100 reports percent')
    parser.add_argument(
        '--out-dir', help='folder of everything (default: work_dirs/seeds)'
    )
    parser.add_argument(
        '--jobs',
        type=int,
        default=1,
        help='trainings at a time; the cores are divided among them unless '
        'OMP_NUM_THREADS is set (default: 1; here are '
        f'{count_cores()} cores)',
    )
    parser.add_argument(
        '--gpus',
        nargs='+',
        default=[],
        metavar='ID',
        help='CUDA devices that the trainings take turns on',
    )
    parser.add_argument(
        '--train-command',
        default=TRAIN_COMMAND,
        help='another command per training, with the placeholders {python} '
        '{config} {work_dir} {split} {seed} {result} {cfg_options}; it must '
        'write {"metrics": {...}} to {result}',
    )
    parser.add_argument(
        '--forked',
        action='store_true',
        help='do the imports once for all trainings; the train command must '
        'be a Python script',
    )
    parser.add_argument(
        '--dry-run', action='store_true', help='list the trainings and stop'
    )
    parser.add_argument(
        '--report-only',
        action='store_true',
        help='write the report from what is finished, train nothing',
    )
    return parser.parse_args(arguments)


def make_plan(args: argparse.Namespace) -> SeedPlan:
    """Make the plan from a file or from the command line.

    Raises:
        PlanError: When the arguments contradict each other.
    """
    if args.plan:
        given = [
            f'--{name.replace("_", "-")}'
            for name in PLAN_ARGUMENTS
            if getattr(args, name) is not None
        ]
        if args.configs or given:
            raise PlanError(
                f'--plan says what is run: leave out {args.configs + given}, '
                'or put it into the plan file.'
            )
        return read_plan(args.plan)
    names = args.names or [Path(path).stem for path in args.configs]
    if len(names) != len(args.configs):
        raise PlanError(
            f'--names has {len(names)} names for {len(args.configs)} configs.'
        )
    return parse_plan(
        {
            'methods': [
                {'name': name, 'config': config}
                for name, config in zip(names, args.configs)
            ],
            'seeds': args.seeds or (),
            'metrics': args.metrics or (),
            'lower_better': args.lower_better or (),
            'baseline': args.baseline or '',
            'cfg_options': dict(map(_split_pair, args.cfg_options or ())),
            'out_dir': args.out_dir or 'work_dirs/seeds',
            'scale': args.scale or 1.0,
            'allow_shared_split': args.allow_shared_split,
            'tune': {
                'grid': {
                    key: values.split(',')
                    for key, values in map(_split_pair, args.tune or ())
                },
                'seeds': args.tune_seeds or (),
                'metric': args.tune_metric or '',
            },
        }
    )


def _split_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition('=')
    if not equals or not key or not value:
        raise PlanError(f'{text!r} is not of the form KEY=VALUE.')
    return key, value


def prepare_forks(plan: SeedPlan, args: argparse.Namespace) -> None:
    """Say what is imported once, and keep each training in one process."""
    if args.train_command == TRAIN_COMMAND:
        args.train_command = TRAIN_COMMAND.replace(
            '--cfg-options', '--in-process --cfg-options'
        )
    scopes = {
        load_config(method.config).get('default_scope')
        for method in plan.methods
    }
    preload_modules(
        [
            *PRELOADED,
            *(
                f'{x}.{y}'
                for x in sorted(filter(None, scopes))
                for y in SCOPED
            ),
        ]
    )


def read_finished(queue: RunQueue, runs: list) -> list[Outcome]:
    """Collect what is finished without running anything."""
    return queue.run([run for run in runs if run.result_file.is_file()])


def run(args: argparse.Namespace, console: Console) -> int:
    """Do what the command line says; give the exit status."""
    plan = make_plan(args)
    if args.forked:
        prepare_forks(plan, args)
    queue = RunQueue(
        plan,
        args.train_command,
        jobs=args.jobs,
        gpus=args.gpus,
        forked=args.forked,
    )
    check_splits(plan)
    tuning_runs = plan.tuning_runs()
    untuned = plan.final_runs()
    for item in tuning_runs + untuned:
        build_command(args.train_command, item)
    tuned = [method for method in plan.methods if method.grid]
    total = len(tuning_runs) + len(plan.methods) * len(plan.seeds)
    console.print(
        f'{len(plan.methods)} methods, {total} trainings '
        f'({len(tuning_runs)} for tuning), {args.jobs} at a time.'
    )
    if args.dry_run:
        for item in tuning_runs + untuned:
            state = 'finished' if item.result_file.is_file() else 'to do'
            console.print(f'{state}: {item.label} ({item.folder})')
        for method in tuned:
            console.print(
                f'after the tuning: final {method.name} seeds '
                f'{list(plan.seeds)}'
            )
        return 0
    with lock_folder(plan.out_dir):
        if args.report_only:
            tuning_outcomes = read_finished(queue, tuning_runs)
            chosen, rows = choose(plan, tuning_outcomes)
            outcomes = read_finished(queue, plan.final_runs(chosen))
        else:
            tuning_outcomes = (
                work_off(console, queue, tuning_runs, 'tuning')
                if tuning_runs
                else []
            )
            chosen, rows = choose(plan, tuning_outcomes)
            for name, choice in chosen.items():
                console.print(f'tuned {name}: {choice}')
            outcomes = work_off(
                console, queue, plan.final_runs(chosen), 'test runs'
            )
        report(console, plan, outcomes, tuning_outcomes, rows)
    untunable = {method.name for method in tuned} - set(chosen)
    if untunable:
        console.print(
            f'[red]No value of {sorted(untunable)} finished all tuning '
            'seeds:[/red] these methods were not tested.'
        )
    failed = any(item.error for item in tuning_outcomes + outcomes)
    return 1 if failed or untunable else 0


def main() -> None:
    """Run, and turn wrong input into one line."""
    console = Console()
    args = parse_args()
    if not args.plan and not args.configs:
        sys.exit('Give config files, or --plan; --help shows examples.')
    # A termination is treated as an interrupt: the trainings end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(run(args, console))
    except PlanError as error:
        sys.exit(f'run_seeds.py: {error}')
    except KeyboardInterrupt:
        console.print(
            'Interrupted. Give the same command again to go on from here.'
        )
        sys.exit(130)


if __name__ == '__main__':
    main()
