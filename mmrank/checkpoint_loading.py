"""Checkpoints are read as data: no file can run code by being loaded.

torch's ``weights_only`` reader of pickles calls listed functions only. mmengine lists ``getattr``,
which reaches any global, and NumPy's own functions, which lay references over raw bytes; and it
falls back to the reader that calls everything. So the list here holds stand-ins, which check the
state of NumPy's arrays and mmengine's log history and build plain objects.
"""

import hashlib
import io
import os
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.fileio import get_file_backend
from mmengine.logging import HistoryBuffer

from mmrank.errors import UserError

_COPY = 'copy or download it again, or pass another file'
#: What is said of a path to a folder, such as one of an earlier training in shards.
IS_A_FOLDER = (
    'is a folder, and a checkpoint is a file. Fix: make one file of it with the version of mmrank '
    'that saved it'
)
_IS_FOLDER = 0x10  # of the DOS attributes
_TRUST = 'If you trust who made the file, pass --trust-checkpoint'
#: Makes torch.load read tensors and plain containers alone, whatever its caller wants.
_SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'
#: Start of a SHA-256 in the name of a file, as OpenMMLab and torchvision give it; a date is none.
_HASH_IN_NAME = re.compile(r'-(?!20\d{6}\.)([0-9a-f]{8,64})\.[a-z]+$')
#: Asks for the opposite, which upstream mmengine needs. torch loads nothing where both are set.
_OPPOSITE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'
_is_trusting = False


class CheckpointError(UserError):
    """A checkpoint cannot be used; the message says why and what to do."""


def load_checkpoint(file: Any, map_location: Any = None, trust: bool | None = None) -> Any:
    """Load a checkpoint without running code from it: tensors, NumPy arrays and plain containers.

    Args:
        file: Path, or file opened to read bytes.
        map_location: See :func:`torch.load`.
        trust: Let the file run code after all. None: as :func:`guard_checkpoints` was told, else
            False.

    Raises:
        CheckpointError: The file needs anything else, or is damaged.
        FileNotFoundError: There is no such file.
    """
    is_path = isinstance(file, str | os.PathLike)
    name = os.fspath(file) if is_path else getattr(file, 'name', 'data')
    with open(file, 'rb') if is_path else nullcontext(file) as opened:
        refuse_damage(opened, name)
    load = partial(torch.load, file, map_location=map_location)
    if _is_trusting if trust is None else trust:
        return load(weights_only=False)
    return _as_data(name, partial(load, weights_only=True), Exception)


def refuse_damage(file: BinaryIO, name: str) -> None:
    """Raise a :class:`CheckpointError` where a file of torch's zip format is not as written.

    torch's own reader does not compare the checksums: a flipped bit is another weight. What has
    another format is left to torch.
    """
    begin = file.tell()
    start = file.read(4)
    if start == b'PK\x03\x04':
        try:
            with zipfile.ZipFile(file) as archive:
                damage = record_damage(archive)
        # Damaged bytes raise anything: struct, zlib, Unicode and value errors.
        except Exception as error:
            raise CheckpointError(_explain(name, error)) from error
        if damage is not None:
            raise CheckpointError(f'checkpoint {name} {damage}.\n  Fix: {_COPY}')
    file.seek(begin)


def record_damage(archive: zipfile.ZipFile) -> str | None:
    """Say what is wrong with the records of a checkpoint; None if they are as written."""
    # For a record that is marked as a folder torch's reader returns memory that it never wrote to:
    # weights of garbage, without an error.
    for member in archive.infolist():
        if member.external_attr & _IS_FOLDER:
            return f'is damaged: record {member.filename} is marked as a folder'
    damaged = archive.testzip()
    return None if damaged is None else f'is damaged: record {damaged} has another checksum'


def guard_checkpoints(trust: bool = False) -> None:
    """Let mmengine load all checkpoints of this process through :func:`load_checkpoint`.

    That covers ``load_from``, ``resume``, ``init_cfg=dict(type='Pretrained')`` and URLs. What
    others load by ``torch.load`` has to be tensors and plain containers, also in processes started
    from here. ``trust`` lets checkpoints run code after all.
    """
    global _is_trusting
    _is_trusting = trust
    if trust:
        os.environ.pop(_SWITCH, None)
    else:
        os.environ[_SWITCH] = '1'
        os.environ.pop(_OPPOSITE, None)
    # Imports what all models need, which the help of a tool need not wait for.
    from mmengine.runner import CheckpointLoader, checkpoint
    from mmengine.utils.dl_utils import load_url

    checkpoint.load_url = _checked(load_url)

    @wraps(checkpoint.load_from_local)
    def load_from_local(filename: str, map_location: Any = None) -> Any:
        filename = os.path.expanduser(filename)
        if os.path.isdir(filename):
            raise CheckpointError(f'checkpoint {filename} {IS_A_FOLDER}')
        if not os.path.isfile(filename):
            raise CheckpointError(
                f'checkpoint {filename} does not exist.\n  Fix: the path of a .pth file, from '
                f'{os.getcwd()} on, in load_from or init_cfg.checkpoint'
            )
        return load_checkpoint(filename, map_location)

    @wraps(checkpoint.load_from_ceph)
    def load_from_ceph(filename: str, map_location: Any = None, backend: str = 'petrel') -> Any:
        try:
            storage = get_file_backend(filename, backend_args={'backend': backend})
        except ImportError as error:
            raise CheckpointError(
                f'checkpoint {filename}: {error}\n  Fix: copy it to this machine and name the file'
            ) from error
        return load_checkpoint(io.BytesIO(storage.get(filename)), map_location)

    for prefixes, load in (
        ('', load_from_local),
        ([r'(\S+\:)?s3://', r'(\S+\:)?petrel://'], load_from_ceph),
        (['http://', 'https://'], _guarded(checkpoint.load_from_http)),
        (['modelzoo://', 'torchvision://'], _guarded(checkpoint.load_from_torchvision)),
        (['open-mmlab://', 'openmmlab://'], _guarded(checkpoint.load_from_openmmlab)),
        ('mmcls://', _guarded(checkpoint.load_from_mmcls)),
    ):
        CheckpointLoader.register_scheme(prefixes, load, force=True)


def sha256_of(path: str | os.PathLike) -> str:
    """SHA-256 of a file in hexadecimal, read block by block."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _checked(load_url: Callable) -> Callable:
    """A download whose hash is the one in its file name, if that has one, before it is read."""

    @wraps(load_url)
    def load(url: str, model_dir: str | None = None, **options: Any) -> Any:
        name = os.path.basename(urlsplit(url).path)
        expected = _HASH_IN_NAME.search(name)
        if expected is not None:
            folder = model_dir or os.path.join(torch.hub.get_dir(), 'checkpoints')
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                os.makedirs(folder, exist_ok=True)
                torch.hub.download_url_to_file(url, path, progress=options.get('progress', True))
            digest = sha256_of(path)
            if not digest.startswith(expected[1]):
                raise CheckpointError(
                    f'checkpoint {url}: {path} has a SHA-256 that begins with '
                    f'{digest[: len(expected[1])]}, and its name says {expected[1]}: it is cut '
                    'off, or another file.\n  Fix: delete it and start again; if it is right, '
                    'name the file in place of the address'
                )
        return load_url(url, model_dir=model_dir, **options)

    return load


def _guarded(load: Callable) -> Callable:
    """A download of mmengine, read as data."""

    @wraps(load)
    def guarded(filename: str, map_location: Any = None) -> Any:
        def fetch() -> Any:
            try:
                return load(filename, map_location=map_location)
            except (HTTPError, URLError, ConnectionError, TimeoutError, KeyError) as error:
                raise CheckpointError(_explain_fetch(filename, error)) from error

        if _is_trusting:
            return fetch()
        return _as_data(filename, fetch, (pickle.UnpicklingError, RuntimeError, EOFError))

    return guarded


def _as_data(name: str, load: Callable, damage: type[Exception] | tuple) -> Any:
    """Load with the list of stand-ins alone; explain what torch's reader refuses.

    ``torch.serialization.safe_globals`` would add to lists with what the stand-ins replace.
    """
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(_ALLOWED)
    try:
        loaded = _restore(load(), {})
    except (CheckpointError, FileNotFoundError, PermissionError, MemoryError):
        raise
    except damage as error:
        raise CheckpointError(_explain(name, error)) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(others)
    if isinstance(loaded, dict) and isinstance(loaded.get('meta'), dict):
        # mmengine runs this text, which its own hooks no longer write, as Python when it resumes.
        loaded['meta'].pop('config', None)
    return loaded


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


def _explain_fetch(name: str, error: Exception) -> str:
    by_hand = 'download it elsewhere and name the file, or leave load_from or init_cfg out'
    if isinstance(error, HTTPError):
        reason, fix = f'the server answers {error.code} {error.reason}', 'correct the address'
    elif isinstance(error, KeyError):
        reason, fix = f'there are no weights named {error}', 'correct the name'
    else:
        reason = f'no network, or no such server: {getattr(error, "reason", error)}'
        fix = 'check the address and the network'
    return f'checkpoint {name} cannot be fetched: {reason}.\n  Fix: {fix}; or {by_hand}'


class _StandIn:
    """Takes the pickled state of an object; ``value`` is the object."""

    value: Any = None


class _Dtype(_StandIn):
    def __init__(self, name: str, *_: Any) -> None:
        self.value = np.dtype(str(name))
        if self.value.kind not in 'biufcSUmM':  # those without references to other objects
            raise pickle.UnpicklingError(f'GLOBAL numpy.dtype({name!r}) refers to Python objects')

    def __setstate__(self, state: tuple) -> None:
        # The rest of the state could lay Python references over raw bytes.
        if state[1] in ('<', '>'):
            self.value = self.value.newbyteorder(state[1])


class _Array(_StandIn):
    def __init__(self, *_: Any) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, data = state
        order = 'F' if is_fortran else 'C'
        array = np.frombuffer(bytes(data), _plain_dtype(kind))
        self.value = array.reshape(shape, order=order).copy(order)


class _History(_StandIn):
    def __setstate__(self, state: dict) -> None:
        # Its own `__setstate__` would let a file replace the statistics of
        # all histories of the process.
        self.value = HistoryBuffer(max_length=int(state['max_length']))
        for name in ('_log_history', '_count_history'):
            setattr(self.value, name, np.asarray(_restore(state[name], {})))


def _scalar(kind: _Dtype, data: bytes) -> np.generic:
    return np.frombuffer(data, _plain_dtype(kind), count=1)[0]


def _plain_dtype(kind: Any) -> np.dtype:
    if not isinstance(kind, _Dtype):
        raise pickle.UnpicklingError(f'a NumPy dtype is {kind!r:.80}')
    return kind.value


#: Stand-ins by the name under which torch's reader looks them up.
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


def _restore(node: Any, memo: dict[int, Any]) -> Any:
    """Replace the stand-ins in nested containers, which stay the same."""
    if id(node) in memo:
        return memo[id(node)][1]
    if isinstance(node, _StandIn):
        return node.value
    made = node
    if type(node) is tuple:
        made = tuple(_restore(item, memo) for item in node)
        if all(new is old for new, old in zip(made, node)):
            made = node
    memo[id(node)] = (node, made)  # before the items of what may hold itself
    if type(node) is list:
        node[:] = [_restore(item, memo) for item in node]
    elif type(node) in (dict, OrderedDict, ConfigDict):
        for key, item in dict.items(node):
            dict.__setitem__(node, key, _restore(item, memo))
    return made
