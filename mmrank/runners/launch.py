"""Processes of a launcher: which of them this is, and how they work on CPUs."""

import os
import subprocess
from datetime import timedelta

import torch
from mmengine.config import Config

from mmrank.errors import UserError


def is_main_process() -> bool:
    """Whether this process reports for all; asked before there is a process group."""
    ranks = (os.environ.get(name) for name in ('RANK', 'SLURM_PROCID', 'OMPI_COMM_WORLD_RANK'))
    return next((rank == '0' for rank in ranks if rank is not None), True)


def check_launcher(launcher: str) -> None:
    """Check that the launcher which the command line names has started this process."""
    needed = dict(
        pytorch=('torchrun', 'RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'),
        mpi=('mpirun', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
    )
    starter, *names = needed.get(launcher, [''])
    lacking = [name for name in names if name not in os.environ]
    if lacking and not torch.distributed.is_initialized():
        what = f'--launcher {launcher}: {lacking[0]} is not set'
        fix = 'tools/dist_train.sh CONFIG GPUS (dist_test.sh), or leave out --launcher'
        raise UserError(f'{what}, so {starter} did not start this process', fix)


def prepare_cpu_processes(cfg: Config) -> None:
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


def _set_slurm_variables() -> None:
    """Say in torchrun's variables which task of Slurm this is, without mmengine's GPU."""
    names = {'RANK': 'SLURM_PROCID', 'WORLD_SIZE': 'SLURM_NTASKS', 'LOCAL_RANK': 'SLURM_LOCALID'}
    lacking = {*names.values(), 'SLURM_NODELIST'} - {*os.environ}
    if lacking:
        what = f'--launcher slurm: {min(lacking)} is not set, so srun did not start this'
        fix = 'start with tools/slurm_train.sh or slurm_test.sh, or here with tools/dist_train.sh'
        raise UserError(what, fix)
    for name, theirs in names.items():
        os.environ[name] = os.environ[theirs]
    if 'MASTER_ADDR' not in os.environ:
        command = ['scontrol', 'show', 'hostname', os.environ['SLURM_NODELIST']]
        hosts = subprocess.run(command, check=True, capture_output=True, text=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
    os.environ.setdefault('MASTER_PORT', '29500')
