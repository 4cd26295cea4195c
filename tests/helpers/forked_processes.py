"""Clean processes in a moment, forked from a server that imported it all.

A new interpreter takes 5 to 8 seconds to import torch and OpenMMLab. The server does that once per
pytest process; its children start with the modules imported and nothing run. Where an import or its
environment is the thing tested, start an interpreter instead.
"""

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

#: What tests and tools import; an absent package is skipped.
PRELOADED = [
    'torch',
    # Loaded by the first step of an optimizer, as slow as torch itself.
    'torch._dynamo',
    'torch.distributed.nn.functional',
    'torch.nn.parallel',
    'mmengine.runner',
    'mmrank.losses',
    'mmrank.models',
    'mmrank.datasets',
    'mmrank.engine.hooks',
    'mmrank.engine.optimizers',
    'matplotlib.pyplot',
    'rich.console',
    'mmdet.apis',
    'mmdet.datasets',
    'mmpretrain.apis',
    'mmpretrain.datasets',
    # What a config of theirs makes the registries import, models among it.
    'mmpretrain.engine',
    'mmrank.engine.hooks',
    'mmrank.evaluation',
]


def process_context():
    """The context of :mod:`multiprocessing` whose processes are forked so.

    A system without it, such as Windows, starts an interpreter for each.
    """
    if 'forkserver' not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context('spawn')
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(PRELOADED)
    return context


def _run_script(path, arguments, cwd, env, out, err) -> None:
    gc.freeze()  # as in conftest.py
    for name, descriptor in ((out, 1), (err, 2)):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    # The streams of the server may be closed or those of pytest.
    sys.stdout = os.fdopen(1, 'w', closefd=False)
    sys.stderr = os.fdopen(2, 'w', buffering=1, closefd=False)
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name='__main__')


def start_script(path, *arguments, out, err, cwd=None, env=None):
    """Start ``python path arguments`` in a process with everything imported.

    Its output and errors are appended to the files ``out`` and ``err``, maybe the same. ``env`` is
    set beside the variables of the server. Returns the process, of :mod:`multiprocessing`.
    """
    where = os.path.abspath(path), list(map(str, arguments)), os.path.abspath(cwd or os.curdir)
    process = process_context().Process(
        target=_run_script, args=(*where, dict(env or {}), str(out), str(err))
    )
    process.start()
    return process


def run_script(path, *arguments, cwd=None, env=None) -> subprocess.CompletedProcess:
    """:func:`start_script`, and its exit status and text of both streams."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, 'out'), Path(folder, 'err')
        process = start_script(path, *arguments, out=out, err=err, cwd=cwd, env=env)
        process.join(300)
        if process.exitcode is None:
            process.kill()
            process.join()
        texts = [x.read_text() if x.exists() else '' for x in (out, err)]
        command = [os.path.abspath(path), *map(str, arguments)]
        return subprocess.CompletedProcess(command, process.exitcode, *texts)
