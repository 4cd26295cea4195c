"""Checkpoints are read as data: no file can run code by being loaded.

torch's ``weights_only`` reader of pickles calls listed functions only. mmengine lists ``getattr``,
which reaches any global, and NumPy's own functions, which lay references over raw bytes; and it
falls back to the reader that calls everything. So :data:`_ALLOWED` takes the place of all lists
while a checkpoint is read.
"""

import os
import pickle
import re
import zipfile
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer

from mmrank.errors import UserError

_COPY = 'copy or download it again, or pass another file'
_IS_FOLDER = 0x10  # of the DOS attributes
_TRUST = 'If you trust who made the file, pass --trust-checkpoint'
#: Makes torch.load read tensors and plain containers alone, also in processes started from here.
_SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'
#: Asks for the opposite, which upstream mmengine needs. torch loads nothing where both are set.
_OPPOSITE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'
_torch_load = torch.load
_is_trusting = False


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


def load_checkpoint(
    file: Any, map_location: Any = None, trust: bool | None = None, **options: Any
) -> Any:
    """Load a checkpoint without running code from it: tensors, NumPy arrays and plain containers.

    ``file`` is a path, or a file opened to read bytes; see :func:`torch.load` for ``map_location``
    and ``options``. ``trust`` lets the file run code after all; None: as :func:`guard_checkpoints`
    was told, else False.

    Raises:
        CheckpointError: The file needs anything else, or is damaged.
        FileNotFoundError: There is no such file.
    """
    is_path = isinstance(file, str | os.PathLike)
    name = os.fspath(file) if is_path else getattr(file, 'name', 'data')
    if not options.get('mmap'):  # which is for files that are read in part
        with open(file, 'rb') if is_path else nullcontext(file) as opened:
            if (damage := zip_damage(opened)) is not None:
                raise CheckpointError(f'checkpoint {name} {damage}.\n  Fix: {_COPY}')
    options.update(map_location=map_location)
    if _is_trusting if trust is None else trust:
        return _torch_load(file, weights_only=False, **options)
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            loaded = _torch_load(file, weights_only=True, **options)
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Exception as error:
        raise CheckpointError(_explain(name, error)) from error
    finally:
        torch.serialization.add_safe_globals(others)
    if isinstance(loaded, dict) and isinstance(loaded.get('meta'), dict):
        # mmengine runs this text, which its own hooks no longer write, as Python when it resumes.
        loaded['meta'].pop('config', None)
    return loaded


def zip_damage(file: BinaryIO) -> str | None:
    """Say what is wrong with a file of torch's zip format; None if it is as written.

    torch's own reader does not compare the checksums: a flipped bit is another weight. What has
    another format is left to torch.
    """
    begin = file.tell()
    start = file.read(4)
    file.seek(begin)
    if start != b'PK\x03\x04':
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            damaged = archive.testzip()
    # Damaged bytes raise anything: struct, zlib, Unicode and value errors.
    except Exception as error:
        return f'is damaged or is not a checkpoint: {type(error).__name__}: {error!s:.200}'
    file.seek(begin)
    # For a record that is marked as a folder torch's reader returns memory that it never wrote to:
    # weights of garbage, without an error.
    folders = [member.filename for member in members if member.external_attr & _IS_FOLDER]
    if folders:
        return f'is damaged: record {folders[0]} is marked as a folder'
    return None if damaged is None else f'is damaged: record {damaged} has another checksum'


def guard_checkpoints(trust: bool = False) -> None:
    """Let this process load all checkpoints through :func:`load_checkpoint`.

    ``torch.load`` becomes that function, so that ``load_from``, ``resume``,
    ``init_cfg=dict(type='Pretrained')``, URLs and caches of other libraries are read as data.
    ``trust`` lets checkpoints run code after all.
    """
    global _is_trusting
    _is_trusting = trust
    if trust:
        os.environ.pop(_SWITCH, None)
    else:
        os.environ[_SWITCH] = '1'
        os.environ.pop(_OPPOSITE, None)
    torch.load = _load
    # Imports what all models need, which the help of a tool need not wait for.
    from mmengine.runner import CheckpointLoader, checkpoint

    fetch = CheckpointLoader.load_checkpoint

    @wraps(fetch)
    def load(filename: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.isdir(os.path.expanduser(filename)):
            what = f'checkpoint {filename} is a folder, and a checkpoint is a file'
            raise CheckpointError(what, 'pass a .pth file')
        try:
            return fetch(filename, *args, **kwargs)
        except FileNotFoundError as error:
            raise CheckpointError(
                f'checkpoint {filename} does not exist.\n  Fix: the path of a .pth file, from '
                f'{os.getcwd()} on, in load_from or init_cfg.checkpoint'
            ) from error
        except (KeyError, ImportError) as error:
            raise CheckpointError(_explain_fetch(filename, error)) from error

    checkpoint.load_url = _load_url
    CheckpointLoader.load_checkpoint = staticmethod(load)


@wraps(torch.load)
def _load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only=None,
    **options: Any,
) -> Any:
    return load_checkpoint(f, map_location, **options)


def _load_url(url: str, **options: Any) -> Any:
    """A download of mmengine; torch compares its hash with the one in the file name, if any."""
    found = torch.hub.HASH_REGEX.search(os.path.basename(urlsplit(url).path))
    # OpenMMLab and torchvision write a hash there, or a date.
    is_hash = found is not None and re.fullmatch(r'(?!20\d{6}$)[0-9a-f]{8,64}', found[1])
    try:
        return torch.hub.load_state_dict_from_url(url, check_hash=bool(is_hash), **options)
    except (URLError, ConnectionError, TimeoutError, RuntimeError) as error:  # or another hash
        cached = Path(torch.hub.get_dir(), 'checkpoints', os.path.basename(urlsplit(url).path))
        raise CheckpointError(_explain_fetch(url, error, f'put it at {cached}')) from error


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
    reason = lines[-2 if 'documentation of torch.load' in lines[-1] else 0]
    return (
        f'checkpoint {name} is damaged or is not a checkpoint: {type(error).__name__}: '
        f'{reason:.200}\n  Fix: {_COPY}'
    )


def _explain_fetch(name: str, error: Exception, remedy: str = 'name the file') -> str:
    reason = str(error).rstrip('.')
    fix = 'correct the address'
    if isinstance(error, HTTPError):
        reason = f'the server answers {error.code} {error.reason}'
    elif isinstance(error, KeyError):
        reason = f'there are no weights named {error}'
        fix = 'correct the name'
    elif isinstance(error, URLError | ConnectionError | TimeoutError):
        reason = f'no network, or no such server: {getattr(error, "reason", error)}'
        fix = 'check the address and the network'
    by_hand = f'download it elsewhere and {remedy}, or leave load_from or init_cfg out'
    return f'checkpoint {name} cannot be fetched: {reason}.\n  Fix: {fix}; or {by_hand}'


class _Dtype:
    """A NumPy dtype; the rest of its state could lay Python references over raw bytes."""

    def __init__(self, name: str, *_: Any) -> None:
        self.value = np.dtype(str(name))
        if self.value.kind not in 'biufcSUmM':  # those without references to other objects
            raise pickle.UnpicklingError(f'GLOBAL numpy.dtype({name!r}) refers to Python objects')

    def __setstate__(self, state: tuple) -> None:
        if state[1] in ('<', '>'):
            self.value = self.value.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that was read; saved again, it is NumPy's own."""

    def __new__(cls, *_: Any) -> '_Array':
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        version, shape, kind, is_fortran, data = state
        super().__setstate__((version, shape, _plain_dtype(kind), is_fortran, bytes(data)))

    def __reduce__(self) -> tuple:
        return np.asarray(self).__reduce__()


class _History(HistoryBuffer):
    """Its own state would let a file replace the statistics of all histories of the process."""

    def __setstate__(self, state: dict) -> None:
        super().__init__(max_length=int(state['max_length']))
        self._log_history = np.asarray(state['_log_history'])
        self._count_history = np.asarray(state['_count_history'])
        self.__class__ = HistoryBuffer


def _scalar(kind: _Dtype, data: bytes) -> np.generic:
    return np.frombuffer(data, _plain_dtype(kind), count=1)[0]


def _plain_dtype(kind: Any) -> np.dtype:
    if not isinstance(kind, _Dtype):
        raise pickle.UnpicklingError(f'a NumPy dtype is {kind!r:.80}')
    return kind.value


#: What a checkpoint may call, by the name under which torch's reader looks it up.
_ALLOWED = [
    ConfigDict,
    (_Dtype, 'numpy.dtype'),
    (_Array, 'numpy.ndarray'),
    (_History, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (lambda *_: None, 'builtins.getattr'),  # of a method of a log history
    (lambda: b'', 'builtins.bytes'),
    # Before and since NumPy 2.
    *((_Array, f'{core}.multiarray._reconstruct') for core in ('numpy.core', 'numpy._core')),
    *((_scalar, f'{core}.multiarray.scalar') for core in ('numpy.core', 'numpy._core')),
]
