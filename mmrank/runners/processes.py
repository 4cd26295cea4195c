"""Start modules as processes of their own, with their output in a log, and end them."""

import atexit
import contextlib
import functools
import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

import torch


def start_process(
    words: Sequence[str], log: str | os.PathLike, threads: int, modules: Sequence[str] = ()
) -> BaseProcess:
    """Start a module, ``['-m', name, ...]``, or a script, as ``python`` does.

    On a CPU each process is a copy of one that has imported ``modules``: the imports of a small
    training take longer than the training. CUDA does not work in a copy.

    Args:
        words: What comes after ``python`` on the command line.
        log: File to which the output is appended.
        threads: Threads of its sums, unless ``OMP_NUM_THREADS`` is set.
        modules: What all processes import; one that is not installed is left out.
    """
    if torch.cuda.is_available():
        context = multiprocessing.get_context('spawn')
    else:
        context = _fork_context()
        context.set_forkserver_preload([*modules])
    # Threads decide the last bits of sums; what the user has set stays.
    settings = {'OMP_NUM_THREADS': str(threads), 'MKL_NUM_THREADS': str(threads), **os.environ}
    process = context.Process(target=_run, args=([*words], os.fspath(log), settings))
    process.start()
    return process


@functools.cache
def _fork_context() -> ForkServerContext:
    """The context of copies, whose parent ends with this process.

    Who measures this process measures what it waited for: that parent, which waits for the copies.
    """
    # The only way to end it, which typeshed does not list.
    atexit.register(forkserver._forkserver._stop)  # pyright: ignore[reportAttributeAccessIssue]
    return multiprocessing.get_context('forkserver')


def _end_with_parent() -> None:
    """End in order where the process that has started this one is gone, also by SIGKILL."""
    if parent := multiprocessing.parent_process():
        connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _run(words: list[str], log: str, settings: dict[str, str]) -> None:
    os.setsid()  # an interrupt reaches who has started us first
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(log, 'ab') as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    # In a process of its own this is the TextIOWrapper of file 1.
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    os.environ.update(settings)
    torch.set_num_threads(int(settings['OMP_NUM_THREADS']))
    sys.path.insert(0, os.getcwd())
    if words[0] == '-m':
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name='__main__', alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name='__main__')


def end_process(process: BaseProcess) -> None:
    """End a process and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.pid is None or not process.is_alive():
            return
        process.terminate()  # it may not have a group yet
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.join(10)
