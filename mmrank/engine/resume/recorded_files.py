"""Files that a checkpoint names, to be removed by the training that resumes.

A checkpoint comes from anywhere, and mmengine removes what it names as the best checkpoint so far,
a whole folder even, when there is a better one. Only files in the folder of the checkpoints are
taken from it, by their names.
"""

import os

from mmengine.hooks import CheckpointHook

#: Names of checkpoints that may go once the one that records them is written.
OUTDATED_KEY = 'mmrank_outdated_ckpts'


def confine_best_checkpoints(checkpoint: dict, runner) -> None:
    """Look for recorded best checkpoints in this training's folder alone.

    Args:
        checkpoint: Content of a file, before it is loaded; changed in place.
        runner: Its hooks know the folder.
    """
    hub = checkpoint.get('message_hub')
    infos = hub.get('runtime_info') if isinstance(hub, dict) else None
    if not isinstance(infos, dict):
        return
    folder = runner.work_dir
    for hook in runner.hooks:
        if isinstance(hook, CheckpointHook) and hook.out_dir:
            last = os.path.basename(runner.work_dir.rstrip(os.sep))
            folder = os.path.join(hook.out_dir, last)
    for key in infos:
        if key == 'best_ckpt' or str(key).startswith('best_ckpt_'):
            name = os.path.basename(str(infos[key]))
            is_best = name.startswith('best_')
            infos[key] = os.path.join(folder, name) if is_best else None


def note_outdated(runner, paths: list[str]) -> None:
    """Record, in the next checkpoint, what is outdated by it."""
    names = [os.path.basename(path) for path in paths]
    runner.message_hub.update_info(OUTDATED_KEY, names)


def recorded_outdated(runner) -> list[str]:
    """The names that the resumed checkpoint records as outdated by it."""
    names = runner.message_hub.runtime_info.get(OUTDATED_KEY)
    return [
        name
        for name in (names if isinstance(names, list) else [])
        if isinstance(name, str) and name.endswith('.pth') and os.path.basename(name) == name
    ]
