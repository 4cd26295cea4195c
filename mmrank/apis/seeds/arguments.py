"""The command line of a comparison over seeds."""

import argparse

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError

from .executors import LocalExecutor, SlurmExecutor, count_cores
from .plan import SeedPlan

EXECUTORS = ('local', 'slurm')


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser of the options that define the trainings and how they are run."""
    parser = tool_parser(
        doc,
        retries=(
            1,
            'how often a training that ends without a result is started again, to resume, before '
            'it is reported',
        ),
        report_only=(False, 'write the report from what is finished, train nothing'),
    )
    add = parser.add_argument
    add('--plan', required=True, help='plan file, YAML')
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
        help='of a job, as submitit names them: timeout_min, cpus_per_task, gpus_per_node, mem_gb, '
        'slurm_partition, slurm_account, ... (cluster=local tries it here)',
    )
    add(
        '--jobs',
        type=int,
        help='trainings at a time; here the cores are divided among them unless OMP_NUM_THREADS is '
        f'set (default: 1 here, which has {count_cores()} cores; what the scheduler permits '
        'elsewhere)',
    )
    return parser


def make_executor(args: argparse.Namespace, plan: SeedPlan) -> LocalExecutor | SlurmExecutor:
    """Make what runs the trainings; options of the command line win over the plan's."""
    name = args.executor or plan.executor
    if name not in EXECUTORS:
        raise UserError(f'`executor` is {name!r}: set one of {EXECUTORS}.')
    options = dict(plan.executor_options) if name == plan.executor else {}
    options.update(map(_split_pair, args.executor_options))
    if args.jobs is not None and args.jobs < 1:
        raise UserError(f'`jobs` is {args.jobs}. Fix: --jobs 1 or more runs at a time')
    if name == 'local':
        if options:
            raise UserError(
                f'`executor` is local and has the options {sorted(options)}: use --jobs, or '
                '--executor slurm.'
            )
        return LocalExecutor(args.jobs or 1)
    return SlurmExecutor(plan.out_dir / '.slurm', options, args.jobs)


def _split_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition('=')
    if not equals or not key or not value:
        raise UserError(f'{text!r} is not of the form KEY=VALUE.')
    return key, value
