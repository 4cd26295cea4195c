"""Writing in all processes."""

from collections.abc import Callable

from mmengine.dist import all_gather_object


def all_succeed(write: Callable[[], None]) -> None:
    """Write in all processes; an OSError in one is raised in all, so that none waits for ever."""
    error = None
    try:
        write()
    except OSError as found:
        error = found
    messages = all_gather_object(None if error is None else str(error))
    if error is not None:
        raise error
    for rank, message in enumerate(messages):
        if message is not None:
            raise OSError(f'process {rank} could not write its shard of the state: {message}')
