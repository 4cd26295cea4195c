"""Check the data of a config, and build its runner.

A detection config runs with mmpretrain absent and a retrieval config with mmdet absent.
"""

import logging
import re
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.registry import OPTIMIZERS, RUNNERS

from mmrank.errors import UserError
from mmrank.files import refuse_link
from mmrank.runners.config_errors import NamedParts, config_error
from mmrank.runners.launch import is_main_process, prepare_cpu_processes

#: What mmengine and mmdet warn of in their own code, whatever the config says.
_OF_LIBRARIES = (
    r'DeprecationWarning: `num_anchors` is|"(FileClient|HardDiskBackend)" (will be|is) '
    r'|torch.meshgrid: in an upcoming|.* is duplicate. It is skipped since bypass_duplicate=True'
)

if TYPE_CHECKING:
    # It imports what all models need, transformers among them: seconds that the help of a tool, or
    # a tool without a model, need not take.
    from mmengine.runner import Runner


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


def build_runner(cfg: Config, strict: bool = True, allow_partial: Sequence[str] = ()) -> 'Runner':
    """Build mmengine's runner or the one that the config names.

    See :class:`mmrank.engine.hooks.CheckpointMatchHook` for ``strict`` and ``allow_partial``.
    """
    import mmengine.runner  # noqa: F401  registers Runner

    from mmrank.engine.hooks import CheckpointMatchHook
    from mmrank.engine.hooks.data_check_hooks import StartCheckHook
    from mmrank.engine.runners import refuse_flexible_runner
    from mmrank.models.dense_heads.host_heads import refuse_hosts

    refuse_flexible_runner(cfg.get('runner_type'))
    refuse_hosts(cfg.get('model'))
    if cfg.launcher in ('pytorch', 'slurm') and get_device() == 'cpu':
        prepare_cpu_processes(cfg)
    _check_dump(cfg)
    if isinstance(cfg.get('visualizer'), dict):
        cfg.visualizer.setdefault('type', 'Visualizer')  # a list of loggers alone
    warnings.filterwarnings('ignore', _OF_LIBRARIES)
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
        what = f'optim_wrapper.optimizer.type={name!r} is not a registered optimizer'
        raise UserError(what, f"'{close[0]}', or import yours by custom_imports")
    runner.logger.addFilter(_is_ours)  # which a logger keeps once
    runner.register_hook(CheckpointMatchHook(strict, allow_partial))
    runner.register_hook(StartCheckHook())
    return runner


def _is_ours(record: logging.LogRecord) -> bool:
    return not re.match(_OF_LIBRARIES, str(record.msg))


def _check_dump(cfg: Config) -> None:
    """Check the file to which mmengine writes the config: it is overwritten."""
    if not cfg.get('work_dir') or not cfg.filename or not is_main_process():
        return
    path = Path(cfg.work_dir, Path(cfg.filename).name)
    refuse_link(path)
    if path.is_file() and path.samefile(cfg.filename):
        source = path.read_text('utf-8')
        if '_base_' in source or 'read_base' in source:
            what = f'--work-dir {cfg.work_dir} is the folder of the config, which it overwrites'
            raise UserError(what, 'another --work-dir')
