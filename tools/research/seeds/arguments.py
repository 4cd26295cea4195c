"""The command line of a comparison over seeds."""

import argparse
from pathlib import Path

from mmrank.errors import UserError

from .executors.executor import Executor
from .executors.local import LocalExecutor, count_cores
from .executors.ray_tasks import RayExecutor
from .executors.slurm import SlurmExecutor
from .plan import SeedPlan
from .plan_file import parse_plan, read_plan

#: What runs the trainings, by the value of ``--executor``.
EXECUTORS = ('local', 'slurm', 'ray')
# Settings that a plan file has itself.
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


def add_arguments(parser: argparse.ArgumentParser, train_command: str) -> None:
    """Add the options that define the trainings and how they are run.

    Args:
        parser: Where to.
        train_command: The default of ``--train-command``.
    """
    parser.add_argument('configs', nargs='*', help='config files, a method each')
    parser.add_argument('--plan', help='plan file (.yaml, .json, .py) instead of configs')
    parser.add_argument('--names', nargs='+', help='names of the configs (default: file names)')
    parser.add_argument('--seeds', nargs='+', type=int, help='seeds to test')
    parser.add_argument('--metrics', nargs='+', help='metric keys, for example coco/bbox_mAP')
    parser.add_argument(
        '--lower-better', nargs='+', metavar='METRIC', help='metrics of which less is better'
    )
    parser.add_argument('--baseline', help='name to test against (default: the first method)')
    parser.add_argument(
        '--tune',
        action='append',
        metavar='KEY=V1,V2',
        help='tune this config key over these values, in ascending order; '
        'repeat it for another key (all combinations are tried)',
    )
    parser.add_argument('--tune-seeds', nargs='+', type=int, help='seeds of the tuning')
    parser.add_argument('--tune-metric', help='metric that decides (default: the first)')
    parser.add_argument(
        '--allow-shared-split',
        action='store_true',
        help='tune even where the test data is the validation data',
    )
    parser.add_argument(
        '--cfg-options', nargs='+', metavar='KEY=VALUE', help='overrides for all configs'
    )
    parser.add_argument('--scale', type=float, help='100 reports percent')
    parser.add_argument('--out-dir', help='folder of everything (default: work_dirs/seeds)')
    parser.add_argument(
        '--executor',
        choices=EXECUTORS,
        help='where to train: on this machine, as jobs of Slurm or as tasks '
        'of Ray (default: that of the plan, else local)',
    )
    parser.add_argument(
        '--executor-options',
        nargs='+',
        default=[],
        metavar='KEY=VALUE',
        help='of a training: time, cpus, gpus, memory_gb, partition, account '
        'and what else sbatch knows for Slurm (cluster=local tries it here); '
        'address, cpus, gpus for Ray',
    )
    parser.add_argument(
        '--jobs',
        type=int,
        help='trainings at a time; here the cores are divided among them '
        'unless OMP_NUM_THREADS is set (default: 1 here, which has '
        f'{count_cores()} cores; what the scheduler permits elsewhere)',
    )
    parser.add_argument(
        '--retries',
        type=int,
        default=1,
        metavar='N',
        help='how often a training that ends without a result is started '
        'again, to resume, before it is reported (default: %(default)s)',
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
        default=train_command,
        help='another command per training, with the placeholders {python} '
        '{config} {work_dir} {split} {seed} {result} {cfg_options}; it must '
        'write {"metrics": {...}} to {result}',
    )
    parser.add_argument(
        '--forked',
        action='store_true',
        help='do the imports once for all trainings; the train command must be a Python script',
    )
    parser.add_argument('--dry-run', action='store_true', help='list the trainings and stop')
    parser.add_argument(
        '--report-only',
        action='store_true',
        help='write the report from what is finished, train nothing',
    )


def make_plan(args: argparse.Namespace) -> SeedPlan:
    """Make the plan from a file or from the command line.

    Raises:
        UserError: When the arguments contradict each other.
    """
    if args.plan:
        given = [
            f'--{name.replace("_", "-")}'
            for name in PLAN_ARGUMENTS
            if getattr(args, name) is not None
        ]
        if args.configs or given:
            raise UserError(
                f'--plan defines the runs: remove {args.configs + given}, or '
                'put it into the plan file.'
            )
        return read_plan(args.plan)
    names = args.names or [Path(path).stem for path in args.configs]
    if len(names) != len(args.configs):
        raise UserError(f'--names has {len(names)} names for {len(args.configs)} configs.')
    return parse_plan(
        {
            'methods': [
                {'name': name, 'config': config} for name, config in zip(names, args.configs)
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
                    key: values.split(',') for key, values in map(_split_pair, args.tune or ())
                },
                'seeds': args.tune_seeds or (),
                'metric': args.tune_metric or '',
            },
        }
    )


def make_executor(args: argparse.Namespace, plan: SeedPlan) -> Executor:
    """Make what runs the trainings.

    Args:
        args: Of :func:`add_arguments`. Options given there win over those of the plan, unless it
            names another executor.
        plan: The plan.

    Raises:
        UserError: If an option makes no sense, or there is no such executor.
        ImportError: If the executor's library is not installed.
    """
    name = args.executor or plan.executor
    if name not in EXECUTORS:
        raise UserError(f'`executor` is {name!r}: set one of {EXECUTORS}.')
    options = dict(plan.executor_options) if name == plan.executor else {}
    options.update(map(_split_pair, args.executor_options))
    jobs = args.jobs
    if jobs is not None and jobs < 1:
        raise UserError(f'`jobs` is {jobs}: at least one run at a time.')
    if name == 'local':
        if options:
            raise UserError(
                f'`executor` is local and has the options {sorted(options)}: '
                'use --jobs and --gpus, or --executor slurm or ray.'
            )
        return LocalExecutor(jobs or 1, args.gpus, args.forked)
    if args.gpus or args.forked:
        raise UserError(
            f'--gpus and --forked are for this machine, not for --executor {name}: remove them; '
            '--executor-options gpus=1 requests a GPU for each training.'
        )
    if name == 'slurm':
        return SlurmExecutor(plan.out_dir / '.slurm', options, jobs)
    return RayExecutor(options, jobs)


def _split_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition('=')
    if not equals or not key or not value:
        raise UserError(f'{text!r} is not of the form KEY=VALUE.')
    return key, value
