"""Options of commands that read a config or a checkpoint."""

import argparse
import os

from mmengine.config import Config, DictAction

from mmrank.cli.options import tool_parser
from mmrank.runners.config import load


def train_or_test_parser(doc: str | None = None, **options) -> argparse.ArgumentParser:
    """The parser of ``mmrank train`` and ``test``, with all that both take."""
    parser = tool_parser(
        doc,
        work_dir=(
            None,
            "folder to write to (default: the config's work_dir, else work_dirs/<its name>)",
        ),
        no_check=(False, 'start without the check of the data'),
        **options,
    )
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='what starts several processes; dist_*.sh and slurm_*.sh of tools/ set it',
    )
    add_config_option(parser)
    add_checkpoint_options(parser)
    # torchrun sets LOCAL_RANK, older launchers pass one of these spellings.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)
    return parser


def load_config(args: argparse.Namespace) -> Config:
    """Read the config of :func:`train_or_test_parser`, with all options applied."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return load(
        args.config, args.cfg_options, args.work_dir, args.launcher, trust=args.trust_checkpoint
    )


class _Options(DictAction):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        for word in values or ():
            if '=' not in word:
                parser.error(
                    f'{option_string}: {word!r} has no value. Fix: KEY=VALUE without blanks, such '
                    'as optim_wrapper.optimizer.lr=0.01'
                )
        super().__call__(parser, namespace, values, option_string)


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that overrides settings of the config."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=_Options,
        metavar='KEY=VALUE',
        help='change settings of the config, such as optim_wrapper.optimizer.lr=0.01; a list as '
        'key="[a,b]", without spaces',
    )


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add what a tool takes whose runner loads checkpoints."""
    parser.add_argument(
        '--allow-partial',
        nargs='+',
        action='extend',
        default=[],
        metavar='PATTERN',
        help='keys of the checkpoint that may differ from the config, with * and ?: '
        "'bbox_head.*' (default: none)",
    )
    add_trust_option(parser)


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets checkpoints run code."""
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='load checkpoints that hold more than data: such a file can run any code',
    )
