"""What tools share: options, configs, runners.

A detection config runs with mmpretrain absent and a retrieval config with mmdet absent.
"""

import argparse
import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from mmengine.config import Config, ConfigDict, DictAction
from mmengine.device import get_device
from mmengine.registry import MODELS, OPTIMIZERS, RUNNERS
from mmengine.utils import import_modules_from_strings

import mmrank.registry  # noqa: F401  with mmcv's operators, before mmdet asks for them
from mmrank.apis.common.command_line import tool_parser
from mmrank.apis.common.openmmlab import DISTRIBUTIONS, check_owner
from mmrank.apis.config_errors import NamedParts, config_error
from mmrank.apis.config_names import check_file_names, check_option_names
from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.errors import UserError
from mmrank.files import refuse_link

if TYPE_CHECKING:
    # It imports what all models need, transformers among them: seconds that the help of a tool, or
    # a tool without a model, need not take.
    from mmengine.runner import Runner

#: How files begin that torch.save writes: a zip archive, or a pickle.
_CHECKPOINTS = (b'PK\x03\x04', b'\x80')
#: Packages that a config may name.
PACKAGES = ('mmcv', 'mmdet', 'mmpretrain', 'mmrank')


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


class _Options(DictAction):
    def __call__(self, parser, namespace, values, option_string=None) -> None:
        for word in values:
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


def parsed_options(options: Mapping[str, str]) -> dict:
    """Options of a plan's row as ``--cfg-options`` reads them, for ``Config.merge_from_dict``."""
    parser = argparse.ArgumentParser()
    add_config_option(parser)
    words = [f'--cfg-options={key}={value}' for key, value in options.items()]
    return parser.parse_args(words).cfg_options or {}


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


def _missing_package(name: str) -> UserError:
    fork, *_ = DISTRIBUTIONS.get(name, (name,))
    return UserError(
        f'this config requires {name}, which is not installed.\n  Fix: pip install {fork} (or the '
        f'upstream distribution of {name}, if the rest of your OpenMMLab is upstream)'
    )


def config_folder() -> Path:
    """The folder ``configs`` of the checkout, or of an installed wheel."""
    package = Path(__file__).parents[1]
    checkout = package.parent / 'configs'
    return checkout if checkout.is_dir() else package / '.mim' / 'configs'


def read_config(path: str, import_modules: bool = True) -> Config:
    """Read a config file and what it inherits from; a UserError says why it cannot be read."""
    if Path(path).is_dir():
        raise UserError(f'{path!r} is a folder.\n  Fix: the path of a config file')
    if not Path(path).is_file():
        raise UserError(
            f'config file {path!r} does not exist.\n  Fix: pass its path relative to '
            f'{os.getcwd()}; the configs of mmrank are in {config_folder()}'
        )
    with open(path, 'rb') as file:
        is_checkpoint = file.read(4).startswith(_CHECKPOINTS)
    if is_checkpoint:
        raise UserError(
            f'{path} is a checkpoint, and a config file is wanted.\n  Fix: the arguments in the '
            'order CONFIG CHECKPOINT'
        )
    try:
        cfg = Config.fromfile(path, import_custom_modules=import_modules)
    except Exception as error:
        inherited = re.findall(r'(\w+)::', Path(path).read_text('utf-8', errors='replace'))
        for name in inherited:
            if name in PACKAGES and importlib.util.find_spec(name) is None:
                raise _missing_package(name) from error
        if 'mmrank' in inherited:
            raise UserError(
                f"{path}: mmengine does not resolve _base_ = 'mmrank::...' (it has a fixed list of "
                'packages).\n  Fix: inherit by path; an installed mmrank has its configs in '
                f'{config_folder()}'
            ) from error
        reason = f'{type(error).__name__}: {error}'
        if isinstance(error, RecursionError):
            reason = 'a _base_ leads back to it'
        raise UserError(
            f'{path} cannot be read as a config: {reason}\n  Fix: correct what the error names'
        ) from error
    check_file_names(cfg, path)
    return cfg


def check_packages(cfg: Config) -> None:
    """Check that the packages of types and scope, and a fitting transformers, are there, once."""
    scopes = {*re.findall(r"'type': '(\w+)\.", str(cfg.to_dict()))}
    scope = cfg.get('default_scope') or 'mmengine'
    if not {scope} & {'mmengine', *PACKAGES, *MODELS.children}:
        raise UserError(
            f'default_scope={scope!r} is not a registry.\n  Fix: one of mmdet, mmpretrain, mmengine'
        )
    scopes.add(scope)
    for name in DISTRIBUTIONS:
        check_owner(name)
    for name in sorted(scopes & set(PACKAGES)):
        if importlib.util.find_spec(name) is None:
            raise _missing_package(name)
    # mmdet imports mmpretrain, if it is there.
    if not scopes & {'mmdet', 'mmpretrain'} or importlib.util.find_spec('mmpretrain') is None:
        return
    try:
        version = metadata.version('transformers')
    except metadata.PackageNotFoundError:
        return
    if int(version.split('.')[0]) >= 5:
        raise UserError(
            f'transformers {version} is installed, which removed functions that mmpretrain 1.x '
            "imports.\n  Fix: pip install 'transformers<5'"
        )


def _set_work_dir(cfg: Config, args: argparse.Namespace) -> None:
    """Take the work folder of the command line, the config, or its name."""
    default = f'work_dirs/{Path(args.config).stem}'
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or default


def set_collate(cfg: Config) -> None:
    """Set the collate function that mmpretrain's configs leave to their tool: models stack."""
    loaders = [cfg.get(f'{split}_dataloader') for split in ('train', 'val', 'test')]
    for loader in loaders:
        if loader and isinstance(loader.get('dataset'), str):
            raise UserError(
                f'dataset={loader["dataset"]!r} of a data loader is a text.\n  Fix: '
                "dataset=dict(type='CocoDataset', ann_file=...), as in configs/_base_/datasets"
            )
    for loader in filter(None, loaders):
        if cfg.get('default_scope') == 'mmpretrain':
            loader.setdefault('collate_fn', ConfigDict(type='default_collate'))
        if isinstance(loader.get('collate_fn'), dict):
            # mmengine passes it on to the function; configs that inherit from mmpretrain's have it.
            loader.collate_fn.pop('_scope_', None)


def apply_options(cfg: Config, options: Mapping | None) -> None:
    """Override settings by the options of the command line; see :func:`check_packages`."""
    if options is not None:
        check_option_names(cfg, options)
        try:
            cfg.merge_from_dict(options)
        except Exception as error:
            raise UserError(
                f'--cfg-options {" ".join(options)}: {error}\n  Fix: name a setting of the config'
            ) from error
        if any(key.split('.')[0] == 'custom_imports' for key in options):
            try:
                import_modules_from_strings(**cfg.custom_imports)  # as Config.fromfile does
            except ImportError as error:
                raise UserError(
                    f'--cfg-options custom_imports: {error}\n  Fix: a module that Python finds, by '
                    'PYTHONPATH'
                ) from error
    check_packages(cfg)


def load(args: argparse.Namespace) -> Config:
    """Read the config and apply the options that both tools have.

    From here on this process loads checkpoints as data, unless the option says otherwise.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    _check_launcher(args.launcher)
    guard_checkpoints(args.trust_checkpoint)
    cfg = read_config(args.config)
    cfg.launcher = args.launcher
    apply_options(cfg, args.cfg_options)
    _set_work_dir(cfg, args)
    set_collate(cfg)
    return cfg


def _prepare_cpu_processes(cfg: Config) -> None:
    """Let several processes work on CPUs: mmengine would select a GPU by rank.

    A process group that is there already it takes as it is.
    """
    if cfg.launcher == 'slurm':
        _set_slurm_variables()
    # Of mmengine, in seconds: how long to wait for a process that is gone.
    seconds = (cfg.get('env_cfg') or {}).get('dist_cfg', {}).get('timeout')
    torch.distributed.init_process_group(
        'gloo', timeout=None if seconds is None else timedelta(seconds=seconds)
    )
    wrapper = cfg.get('model_wrapper_cfg') or dict(
        type='MMDistributedDataParallel',
        find_unused_parameters=cfg.get('find_unused_parameters', False),
        broadcast_buffers=False,
    )
    cfg.model_wrapper_cfg = dict(wrapper, device_ids=None)


def _check_launcher(launcher: str) -> None:
    """Check that the launcher which the command line names has started this process."""
    needed = dict(
        pytorch=('torchrun', 'RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'),
        mpi=('mpirun', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
    )
    starter, *names = needed.get(launcher, [''])
    lacking = [name for name in names if name not in os.environ]
    if lacking and not torch.distributed.is_initialized():
        raise UserError(
            f'--launcher {launcher}: {lacking[0]} is not set, so {starter} did not start this '
            'process.\n  Fix: tools/dist_train.sh CONFIG GPUS (dist_test.sh), or leave out '
            '--launcher'
        )


def _set_slurm_variables() -> None:
    """Say in torchrun's variables which task of Slurm this is, without mmengine's GPU."""
    names = {'RANK': 'SLURM_PROCID', 'WORLD_SIZE': 'SLURM_NTASKS', 'LOCAL_RANK': 'SLURM_LOCALID'}
    lacking = {*names.values(), 'SLURM_NODELIST'} - {*os.environ}
    if lacking:
        raise UserError(
            f'--launcher slurm: {min(lacking)} is not set, so srun did not start this.\n  Fix: '
            'start with tools/slurm_train.sh or slurm_test.sh, or here with tools/dist_train.sh'
        )
    for name, theirs in names.items():
        os.environ[name] = os.environ[theirs]
    if 'MASTER_ADDR' not in os.environ:
        command = ['scontrol', 'show', 'hostname', os.environ['SLURM_NODELIST']]
        hosts = subprocess.run(command, check=True, capture_output=True, text=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
    os.environ.setdefault('MASTER_PORT', '29500')


def _check_dump(cfg: Config) -> None:
    """Check the file to which mmengine writes the config: it is overwritten."""
    if not cfg.get('work_dir') or not cfg.filename or not is_main_process():
        return
    path = Path(cfg.work_dir, Path(cfg.filename).name)
    refuse_link(path)
    if path.is_file() and path.samefile(cfg.filename):
        source = path.read_text('utf-8')
        if '_base_' in source or 'read_base' in source:
            raise UserError(
                f'--work-dir {cfg.work_dir} is the folder of the config, and mmengine would '
                'overwrite it.\n  Fix: another --work-dir'
            )


def build_runner(cfg: Config, strict: bool = True, allow_partial: Sequence[str] = ()) -> 'Runner':
    """Build mmengine's runner or the one that the config names.

    See :class:`mmrank.engine.hooks.CheckpointMatchHook` for ``strict`` and ``allow_partial``.
    """
    import mmengine.runner  # noqa: F401  registers Runner

    from mmrank.engine.hooks import CheckpointMatchHook
    from mmrank.engine.hooks.data_check_hooks import StartCheckHook
    from mmrank.engine.runners import refuse_flexible_runner

    refuse_flexible_runner(cfg.get('runner_type'))
    if cfg.launcher in ('pytorch', 'slurm') and get_device() == 'cpu':
        _prepare_cpu_processes(cfg)
    _check_dump(cfg)
    if isinstance(cfg.get('visualizer'), dict):
        cfg.visualizer.setdefault('type', 'Visualizer')  # a list of loggers alone
    name = cfg.get('runner_type', 'Runner')
    kind = RUNNERS.get(name) if isinstance(name, str) else name
    if kind is None:
        raise UserError(f'runner_type={name!r} is not registered.\n  Fix: leave it out')
    try:
        runner = type(kind.__name__, (NamedParts, kind), {}).from_cfg(cfg)
    except Exception as error:
        raise config_error(error, 'cannot be built') from error
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}
    name = optimizer.get('type', '')
    # The scope is the config's: LARS is mmpretrain's.
    with OPTIMIZERS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        is_unknown = isinstance(name, str) and name and registry.get(name) is None
    if is_unknown:
        close = get_close_matches(name, OPTIMIZERS.module_dict, 1) or ['SGD']
        raise UserError(
            f'optim_wrapper.optimizer.type={name!r} is not a registered optimizer.\n  Fix: '
            f"'{close[0]}', or import yours by custom_imports"
        )
    runner.register_hook(CheckpointMatchHook(strict, allow_partial))
    runner.register_hook(StartCheckHook())
    return runner


def is_main_process() -> bool:
    """Whether this process reports for all; asked before there is a process group."""
    ranks = (os.environ.get(name) for name in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'))
    return next((rank == '0' for rank in ranks if rank is not None), True)


def check_data(cfg: Config, splits: tuple[str, ...]) -> list[str]:
    """Check the files of a config's data sets; a UserError names every problem.

    Returns what is only warned of: a tool says it again when it ends, below hundreds of lines.
    """
    from mmrank.datasets.checks import coco_check, retrieval_check

    # The files are the same for all processes: one check, one message.
    if not is_main_process():
        return []
    checks = (check.check_config(cfg, splits=splits) for check in (coco_check, retrieval_check))
    reports = [report for found in checks for report in found if report.warnings]
    return [f'warning: {report.describe(report.warnings)}' for report in reports]
