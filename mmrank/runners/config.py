"""Read a config, with the options of a command line."""

import argparse
import importlib.util
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from mmengine.config import Config, ConfigDict, DictAction
from mmengine.registry import MODELS
from mmengine.utils import import_modules_from_strings

import mmrank.registry  # noqa: F401  with mmcv's operators, before mmdet asks for them
from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.errors import UserError
from mmrank.runners.config_names import check_file_names, check_option_names
from mmrank.runners.launch import check_launcher
from mmrank.runners.openmmlab import DISTRIBUTIONS, check_owner

#: How files begin that torch.save writes: a zip archive, or a pickle.
_CHECKPOINTS = (b'PK\x03\x04', b'\x80')
#: Packages that a config may name.
PACKAGES = ('mmcv', 'mmdet', 'mmpretrain', 'mmrank')


def load(
    path: str,
    options: dict | None = None,
    work_dir: str | None = None,
    launcher: str = 'none',
    trust: bool = False,
) -> Config:
    """Read a config that is to be trained or tested.

    From here on this process loads checkpoints as data, unless ``trust``.

    Args:
        path: The config file.
        options: Settings that override the config's, by their keys.
        work_dir: The work folder; None: the config's, or ``work_dirs/<its name>``.
        launcher: What starts several processes: ``'none'``, ``'pytorch'``, ``'slurm'``, ``'mpi'``.
        trust: Load checkpoints that hold more than data, which can run any code.
    """
    check_launcher(launcher)
    guard_checkpoints(trust)
    cfg = read_config(path)
    cfg.launcher = launcher
    apply_options(cfg, options)
    cfg.work_dir = work_dir or cfg.get('work_dir') or f'work_dirs/{Path(path).stem}'
    set_collate(cfg)
    return cfg


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
        what = f'{path} is a checkpoint, and a config file is wanted'
        raise UserError(what, 'the arguments in the order CONFIG CHECKPOINT')
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


def _missing_package(name: str) -> UserError:
    fork, *_ = DISTRIBUTIONS.get(name, (name,))
    return UserError(
        f'this config requires {name}, which is not installed.\n  Fix: pip install {fork} (or the '
        f'upstream distribution of {name}, if the rest of your OpenMMLab is upstream)'
    )


def apply_options(cfg: Config, options: dict | None) -> None:
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


def parsed_options(options: Mapping[str, str]) -> dict:
    """Options of a plan's row as ``--cfg-options`` reads them, for ``Config.merge_from_dict``."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    words = [f'--cfg-options={key}={value}' for key, value in options.items()]
    return parser.parse_args(words).cfg_options or {}


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


def set_collate(cfg: Config) -> None:
    """Set the collate function that mmpretrain's configs leave to their tool: models stack."""
    loaders = [cfg.get(f'{split}_dataloader') for split in ('train', 'val', 'test')]
    for loader in loaders:
        if loader and isinstance(loader.get('dataset'), str):
            what = f'dataset={loader["dataset"]!r} of a data loader is a text'
            fix = "dataset=dict(type='CocoDataset', ann_file=...), as in configs/_base_/datasets"
            raise UserError(what, fix)
    for loader in filter(None, loaders):
        if cfg.get('default_scope') == 'mmpretrain':
            loader.setdefault('collate_fn', ConfigDict(type='default_collate'))
        if isinstance(loader.get('collate_fn'), dict):
            # mmengine passes it on to the function; configs that inherit from mmpretrain's have it.
            loader.collate_fn.pop('_scope_', None)
