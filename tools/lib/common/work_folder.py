"""The folder of a training: one training at a time in it, and nothing of another one is lost."""

from pathlib import Path

from mmengine.config import Config

from lib.common.folder_lock import FolderHeldError, FolderLock
from mmrank.errors import UserError
from mmrank.interruption import call_at_end


def lock_work_dir(work_dir: str, force: bool) -> FolderLock:
    """Take the work folder, so that no two trainings mix their files."""
    lock = FolderLock(Path(work_dir) / '.training.lock')
    try:
        owner = lock.acquire(force)
    except FolderHeldError as error:
        raise UserError(
            f'{error}.\n  Fix: wait until it has ended, choose another folder '
            'with --work-dir, or pass --force if it trains no longer'
        ) from None
    except OSError as error:
        raise UserError(
            f'work folder {work_dir!r} cannot be written to: {error.strerror}.\n  Fix: choose '
            'another one with --work-dir'
        ) from None
    if owner is not None:
        reason = 'by --force' if force else 'as it has ended'
        print(f'The work folder is taken over from {owner}, {reason}.')
    call_at_end(lock.release)
    return lock


def refuse_other_training(cfg: Config) -> None:
    """Refuse to start in the folder of another config: its checkpoints would be overwritten.

    mmengine writes the config of a training, under the name of its file, beside its checkpoints.
    """
    folder = Path(cfg.work_dir)
    name = Path(cfg.filename).name
    configs = sorted(path.name for path in folder.glob('*.py'))
    checkpoints = [*folder.glob('epoch_*.pth'), *folder.glob('iter_*.pth')]
    if checkpoints and configs and name not in configs:
        raise UserError(
            f'{folder} holds checkpoints of {configs[0]}, and {name} would overwrite them.\n  Fix: '
            'another --work-dir, or --resume to go on from them'
        )
