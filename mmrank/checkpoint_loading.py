"""Checkpoints are read as data: no file can run code by being loaded.

A checkpoint of torch is a pickle, which can call any function when it is
read. torch's ``weights_only`` reader calls listed ones only. mmengine lists ``getattr`` among them,
through which a file reaches the globals of any
listed function, and falls back to the reader that calls everything. Here the list holds stand-ins:
functions of this module that take the state of NumPy's arrays and of mmengine's log history, check
it and build plain objects.
"""

import os
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer

from mmrank.errors import UserError

#: Kinds of NumPy arrays without references to other objects.
_PLAIN_KINDS = 'biufcSUmM'
_TRUST = 'If you trust who made the file, pass --trust-checkpoint'


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


def load_checkpoint(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    trust: bool = False,
    **options: Any,
) -> Any:
    """Load a checkpoint without running code from it.

    It takes the place of :func:`torch.load`, see :func:`guard_torch_load`.

    Args:
        f: Path, or file opened to read bytes.
        map_location: See :func:`torch.load`.
        pickle_module: Another reader; not used without trust.
        trust: Let the file run code after all, as old ones may have to.
        **options: Those of :func:`torch.load`. Without trust only ``mmap`` counts.

    Returns:
        Tensors, NumPy arrays and scalars, log histories and plain containers.

    Raises:
        CheckpointError: The file needs anything else, or is damaged.
        FileNotFoundError: There is no such file.
    """
    if trust:
        options['weights_only'] = False
        return _torch_load(f, map_location, pickle_module, **options)
    name = getattr(f, 'name', None) or (
        os.fspath(f) if isinstance(f, str | os.PathLike) else 'data'
    )
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(_ALLOWED)
    try:
        loaded = _torch_load(
            f, map_location=map_location, weights_only=True, mmap=options.get('mmap')
        )
        loaded = _restore(loaded, {})
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        raise CheckpointError(_explain(name, error)) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(others)
    if isinstance(loaded, dict) and isinstance(loaded.get('meta'), dict):
        # mmengine runs this text, which its own hooks no longer write, as Python when it resumes.
        loaded['meta'].pop('config', None)
    return loaded


def guard_torch_load(trust: bool = False) -> None:
    """Let this process load all checkpoints through :func:`load_checkpoint`.

    That covers what mmengine, mmdet and mmpretrain load by themselves: ``load_from``, ``resume``,
    ``init_cfg=dict(type='Pretrained')``, URLs.

    Args:
        trust: Let checkpoints run code after all.
    """
    torch.load = partial(load_checkpoint, trust=trust)


def guarded_loader() -> Callable[..., Any]:
    """The loader that :func:`guard_torch_load` has set, or the strict one."""
    is_set = getattr(torch.load, 'func', None) is load_checkpoint
    return torch.load if is_set else load_checkpoint


_torch_load = torch.serialization.load


def _explain(name: str, error: Exception) -> str:
    text = str(error)
    match = re.search(r'GLOBAL (\S+) ', text) or re.search(
        r'unrecognized function (.+?)(?: which|\n|$)', text
    )
    if match is not None:
        return (
            f'checkpoint {name} calls {match[1]} when it is loaded, and a checkpoint may hold data '
            f'only.\n  Fix: use a checkpoint that holds tensors and plain values. {_TRUST}'
        )
    if 'TorchScript' in text or '.tar format' in text:
        return (
            f'checkpoint {name} is a TorchScript or tar archive, which can '
            f'run code.\n  Fix: pass the .pth file of a training. {_TRUST}'
        )
    lines = [line for line in text.splitlines() if line.strip()] or ['']
    # torch puts its advice before and a link after what was wrong.
    at = -2 if 'documentation of torch.load' in lines[-1] else 0
    reason = lines[at]
    return (
        f'checkpoint {name} is damaged or is not a checkpoint: {type(error).__name__}: '
        f'{reason:.200}\n  Fix: copy or download it again, or pass another file'
    )


class _DtypeState:
    """Stands in for ``numpy.dtype``."""

    def __init__(self, name: str, *_: Any) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in _PLAIN_KINDS:
            raise pickle.UnpicklingError(f'GLOBAL numpy.dtype({name!r}) refers to Python objects')

    def __setstate__(self, state: tuple) -> None:
        # The rest of the state could lay Python references over raw bytes.
        if state[1] in ('<', '>'):
            self.dtype = self.dtype.newbyteorder(state[1])

    def restore(self, memo: dict) -> np.dtype:
        return self.dtype


class _ArrayState:
    """Stands in for ``numpy.ndarray``."""

    def __init__(self) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, data = state
        array = np.frombuffer(bytes(data), _dtype_of(kind))
        order = 'F' if is_fortran else 'C'
        self.array = array.reshape(shape, order=order).copy(order)

    def restore(self, memo: dict) -> np.ndarray:
        return self.array


class _HistoryState:
    """Stands in for mmengine's ``HistoryBuffer``."""

    def __init__(self) -> None:
        self.state: dict = {}

    def __setstate__(self, state: dict) -> None:
        self.state = state

    def restore(self, memo: dict) -> HistoryBuffer:
        # Its own `__setstate__` would let a file replace the statistics of
        # all histories of the process.
        history = HistoryBuffer(max_length=int(self.state['max_length']))
        for name in ('_log_history', '_count_history'):
            values = _restore(self.state[name], memo)
            setattr(history, name, np.asarray(values))
        return history


def _dtype_of(kind: Any) -> np.dtype:
    if not isinstance(kind, _DtypeState):
        raise pickle.UnpicklingError(f'a NumPy dtype is {kind!r:.80}')
    return kind.dtype


def _named(stand_in: Any, path: str) -> Any:
    """Give a stand-in the name under which the reader of torch looks it up."""
    stand_in.__module__, _, stand_in.__qualname__ = path.rpartition('.')
    stand_in.__name__ = stand_in.__qualname__
    return stand_in


def _allowed() -> list[Any]:
    def statistic(*_: Any) -> None:
        """Stands in for the ``getattr`` of a method of a log history."""

    found = [
        _named(_DtypeState, 'numpy.dtype'),
        _named(_ArrayState, 'numpy.ndarray'),
        _named(_HistoryState, 'mmengine.logging.history_buffer.HistoryBuffer'),
        _named(statistic, 'builtins.getattr'),
        _named(lambda: b'', 'builtins.bytes'),
        ConfigDict,
    ]
    for core in ('numpy.core', 'numpy._core'):  # before and since NumPy 2

        def new_array(*_: Any) -> _ArrayState:
            return _ArrayState()

        def scalar(kind: _DtypeState, data: bytes) -> np.generic:
            return np.frombuffer(data, _dtype_of(kind), count=1)[0]

        found += [
            _named(new_array, f'{core}.multiarray._reconstruct'),
            _named(scalar, f'{core}.multiarray.scalar'),
        ]
    return found


_ALLOWED = _allowed()


def _restore(node: Any, memo: dict[int, Any]) -> Any:
    """Replace the stand-ins in nested containers, which stay the same."""
    if id(node) in memo:
        return memo[id(node)][1]
    if isinstance(node, _DtypeState | _ArrayState | _HistoryState):
        made = node.restore(memo)
    elif type(node) is tuple:
        made = tuple(_restore(item, memo) for item in node)
        if all(new is old for new, old in zip(made, node)):
            made = node
    else:
        made = node
        memo[id(node)] = (node, made)  # before its items: it may hold itself
        if type(node) is list:
            node[:] = [_restore(item, memo) for item in node]
        elif type(node) in (dict, OrderedDict, ConfigDict):
            for key, item in dict.items(node):
                dict.__setitem__(node, key, _restore(item, memo))
        return made
    memo[id(node)] = (node, made)  # the node too, so that its id stays its own
    return made
