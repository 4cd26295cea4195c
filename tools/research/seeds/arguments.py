"""The command line of a comparison over seeds."""

import argparse
from pathlib import Path

from mmrank.errors import UserError
from research.common.command_line import benchmark_parser

from .executors import LocalExecutor, SlurmExecutor, count_cores
from .plan import SeedPlan, parse_plan, read_plan

EXECUTORS = ('local', 'slurm')
# Settings that a plan file has itself.
PLAN_ARGUMENTS = (
    *('names', 'seeds', 'metrics', 'lower_better', 'baseline', 'tune', 'tune_seeds'),
    *('tune_metric', 'cfg_options', 'scale', 'out_dir'),
)


def make_parser(doc: str | None, train_command: str) -> argparse.ArgumentParser:
    """A parser of the options that define the trainings and how they are run."""
    parser = benchmark_parser(
        doc,
        plan=(None, 'plan file (.yaml, .json, .py) instead of configs'),
        baseline=(None, 'name to test against; None: the first method'),
        tune_metric=(None, 'metric that decides; None: the first'),
        allow_shared_split=(False, 'tune even where the test data is the validation data'),
        out_dir=(None, 'folder of everything; None: work_dirs/seeds'),
        retries=(
            1,
            'how often a training that ends without a result is started again, to resume, before '
            'it is reported',
        ),
        forked=(
            False,
            'do the imports once for all trainings; the train command must be a Python script',
        ),
        dry_run=(False, 'list the trainings and stop'),
        report_only=(False, 'write the report from what is finished, train nothing'),
    )
    add = parser.add_argument
    add('configs', nargs='*', help='config files, a method each')
    add('--names', nargs='+', help='names of the configs (default: file names)')
    add('--seeds', nargs='+', type=int, help='seeds to test')
    add('--metrics', nargs='+', help='metric keys, for example coco/bbox_mAP')
    add('--lower-better', nargs='+', metavar='METRIC', help='metrics of which less is better')
    add(
        '--tune',
        action='append',
        metavar='KEY=V1,V2',
        help='tune this config key over these values, in ascending order; repeat it for another '
        'key (all combinations are tried)',
    )
    add('--tune-seeds', nargs='+', type=int, help='seeds of the tuning')
    add('--cfg-options', nargs='+', metavar='KEY=VALUE', help='overrides for all configs')
    add('--scale', type=float, help='100 reports percent')
    add(
        '--executor',
        choices=EXECUTORS,
        help='where to train: on this machine, or as jobs of Slurm (default: that of the plan, '
        'else local)',
    )
    add(
        '--executor-options',
        nargs='+',
        default=[],
        metavar='KEY=VALUE',
        help='of a job: time, cpus, gpus, memory_gb, partition, account and what else sbatch knows '
        '(cluster=local tries it here)',
    )
    add(
        '--jobs',
        type=int,
        help='trainings at a time; here the cores are divided among them unless OMP_NUM_THREADS is '
        f'set (default: 1 here, which has {count_cores()} cores; what the scheduler permits '
        'elsewhere)',
    )
    add('--gpus', nargs='+', default=[], metavar='ID', help='CUDA devices to take turns on')
    add(
        '--train-command',
        default=train_command,
        help='another command per training, with the placeholders {python} {config} {work_dir} '
        '{split} {seed} {result} {cfg_options}; it must write {"metrics": {...}} to {result}',
    )
    return parser


def make_plan(args: argparse.Namespace) -> SeedPlan:
    """Make the plan from a file or from the command line; UserError where they contradict."""
    if args.plan:
        given = [
            f'--{name.replace("_", "-")}'
            for name in PLAN_ARGUMENTS
            if getattr(args, name) is not None
        ]
        if args.configs or given:
            raise UserError(
                f'--plan defines the runs: remove {args.configs + given}, or put it into the plan '
                'file.'
            )
        return read_plan(args.plan)
    names = args.names or [Path(path).stem for path in args.configs]
    if len(names) != len(args.configs):
        raise UserError(f'--names has {len(names)} names for {len(args.configs)} configs.')
    tune = {key: values.split(',') for key, values in map(_split_pair, args.tune or ())}
    return parse_plan(
        {
            'methods': [{'name': x, 'config': config} for x, config in zip(names, args.configs)],
            **{key: getattr(args, key) or () for key in ('seeds', 'metrics', 'lower_better')},
            'baseline': args.baseline or '',
            'cfg_options': dict(map(_split_pair, args.cfg_options or ())),
            'out_dir': args.out_dir or 'work_dirs/seeds',
            'scale': args.scale or 1.0,
            'allow_shared_split': args.allow_shared_split,
            'tune': dict(grid=tune, seeds=args.tune_seeds or (), metric=args.tune_metric or ''),
        }
    )


def make_executor(args: argparse.Namespace, plan: SeedPlan) -> LocalExecutor | SlurmExecutor:
    """Make what runs the trainings; options of the command line win over those of the plan."""
    name = args.executor or plan.executor
    if name not in EXECUTORS:
        raise UserError(f'`executor` is {name!r}: set one of {EXECUTORS}.')
    options = dict(plan.executor_options) if name == plan.executor else {}
    options.update(map(_split_pair, args.executor_options))
    if args.jobs is not None and args.jobs < 1:
        raise UserError(f'`jobs` is {args.jobs}: at least one run at a time.')
    if name == 'local':
        if options:
            raise UserError(
                f'`executor` is local and has the options {sorted(options)}: use --jobs and '
                '--gpus, or --executor slurm.'
            )
        return LocalExecutor(args.jobs or 1, args.gpus, args.forked)
    if args.gpus or args.forked:
        raise UserError(
            f'--gpus and --forked are for this machine, not for --executor {name}: remove them; '
            '--executor-options gpus=1 requests a GPU for each training.'
        )
    return SlurmExecutor(plan.out_dir / '.slurm', options, args.jobs)


def _split_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition('=')
    if not equals or not key or not value:
        raise UserError(f'{text!r} is not of the form KEY=VALUE.')
    return key, value
