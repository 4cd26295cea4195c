"""A checkpoint as a folder to which each process writes its part.

It holds what a file of ``Runner`` does. Large tensors are in the format of
``torch.distributed.checkpoint``; everything else is in ``rest.pth``, which is read as data: what
torch writes in addition to tensors is a pickle. It loads on any number of processes.
"""

import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from mmengine.dist import broadcast_object_list, get_rank, get_world_size, is_main_process
from torch import Tensor

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.resume.whole_checkpoint import all_succeed, find_folder_damage
from mmrank.errors import UserError
from mmrank.state.shard_files import SHARD_FILES_KEY, own_shard_names

try:
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint import filesystem, metadata
    from torch.distributed.fsdp import fully_shard  # noqa: F401
    from torch.distributed.tensor import DTensor, distribute_tensor
except ImportError as error:
    raise UserError(
        'training in shards requires torch>=2.6, installed is '
        f"{torch.__version__}. Fix: pip install 'torch>=2.6'"
    ) from error

REST = 'rest.pth'
_METADATA = '.metadata'
#: Parts whose tensors are large, and the same on all processes unless spread.
_SHARED = ('state_dict', 'ema_state_dict', 'optimizer')
#: Where ``rest.pth`` says which tensor is where.
_KEYS = 'mmrank_tensors'
_VERSIONS = 'mmrank_versions'

#: Where a tensor is in nested containers.
Path_ = tuple[str | int, ...]
#: Gives a spread tensor like which one of this path and shape is to be, or None for a whole one on
#: each process.
Placement = Callable[[Path_, torch.Size], Tensor | None]


def save_sharded(checkpoint: dict, folder: str | Path, own: dict | None = None) -> None:
    """Write a checkpoint into a new folder; all processes call it.

    ``own`` is this process's part of spread state, see :func:`mmrank.state.save_shard`: all have
    some, or none has.
    """
    tensors: dict[Path_, Tensor] = {}
    rest = _take_out(checkpoint, (), tensors)
    keys = {'/'.join(map(str, path)): path for path in tensors}
    dcp.save(
        {key: tensors[path] for key, path in keys.items()},
        storage_writer=dcp.FileSystemWriter(folder, sync_files=False),
        planner=dcp.DefaultSavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=True),
    )
    if own:
        names = own_shard_names(get_world_size())
        place = Path(folder, names[get_rank()])
        all_succeed(lambda: torch.save(own, place))
        rest[SHARD_FILES_KEY] = names
    if is_main_process():
        rest[_KEYS] = keys
        rest[_VERSIONS] = {
            name: {key: dict(value) for key, value in versions.items()}
            for name in _SHARED
            if (versions := getattr(checkpoint.get(name), '_metadata', None))
        }
        torch.save(rest, Path(folder, REST))


def load_sharded(
    folder: str | Path, place: Placement | None = None, without: tuple[str, ...] = ()
) -> dict:
    """Read a folder of :func:`save_sharded`; all processes call it, or one alone.

    ``place`` says how each tensor is spread; None: this process alone reads all of them. Parts in
    ``without`` are left out. A :class:`CheckpointError` is raised where there is more than data.
    """
    folder = Path(folder)
    # Parts of two trainings fit each other, and only the manifest tells. A folder of another
    # strategy has none.
    damage = [find_folder_damage(folder) if place is None or is_main_process() else None]
    if place is not None:
        broadcast_object_list(damage)
    if damage[0] is not None:
        raise CheckpointError(
            f'checkpoint {folder} {damage[0]}. Fix: copy it again, or pass another one'
        )
    rest = load_checkpoint(folder / REST, map_location='cpu')
    keys, versions = _popped(rest, folder)
    reader = DataReader(folder)
    saved = reader.read_metadata().state_dict_metadata
    tensors = {}
    for key, path in keys.items():
        if path[0] in without:
            continue
        entry = saved.get(key)
        is_tensor = isinstance(entry, metadata.TensorStorageMetadata)
        if not is_tensor or sum(x.sizes.numel() for x in entry.chunks) != entry.size.numel():
            raise CheckpointError(
                f'checkpoint {folder} lacks tensor {key}, or a part of it. Fix: copy it again, or '
                'pass another one'
            )
        like = place(path, entry.size) if place is not None else None
        dtype = entry.properties.dtype
        tensors[key] = (
            torch.empty(entry.size, dtype=dtype)
            if like is None
            else torch.empty_like(like, dtype=dtype, requires_grad=False)
        )
    if tensors:
        dcp.load(
            tensors,
            storage_reader=reader,
            planner=dcp.DefaultLoadPlanner(flatten_state_dict=False),
            no_dist=place is None,
        )
    for part in without:
        rest.pop(part, None)
    for key, tensor in tensors.items():
        _put(rest, keys[key], tensor)
    for name, values in versions.items():
        if name in rest:
            rest[name]._metadata = OrderedDict(values)
    return rest


def spread(checkpoint: dict, place: Placement) -> dict:
    """Spread the whole tensors of a file over the processes, in place. Sends nothing."""
    tensors: dict[Path_, Tensor] = {}
    _take_out(checkpoint, (), tensors, small=True)
    for path, tensor in tensors.items():
        like = place(path, tensor.shape)
        if like is not None and not isinstance(tensor, DTensor):
            own = distribute_tensor(
                tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
            )
            _put(checkpoint, path, own)
    return checkpoint


class DataReader(dcp.FileSystemReader):
    """Torch's reader, which would run the pickle ``.metadata``, with listed classes alone."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        """Read ``.metadata``; a :class:`CheckpointError` where it holds something else."""
        path = Path(self.path, _METADATA)
        try:
            with open(path, 'rb') as file:
                found = _MetadataUnpickler(file).load()
            names = {x.relative_path for x in found.storage_data.values()}
            if any(Path(name).name != name for name in names):
                raise pickle.UnpicklingError('a file of another folder')
        # Damaged bytes raise anything.
        except Exception as error:
            raise CheckpointError(
                f'checkpoint {path} is damaged or holds more than data: '
                f'{error}. Fix: copy it again, or pass another one'
            ) from error
        found.storage_meta = metadata.StorageMeta(load_id=self.load_id)
        return found


class _MetadataUnpickler(pickle._Unpickler):
    """Builds the data classes of ``.metadata`` and nothing else.

    The reader in Python, as the one in C lets a file set attributes of what it names: of a class of
    torch, for the whole process.
    """

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)
    # It fills as many bytes with zeros as the file says, before any is read.
    del dispatch[pickle.BYTEARRAY8[0]]

    def load_build(self) -> None:
        """Set the state of an object that this file has made."""
        made = self.stack[-2]
        if not is_dataclass(made) or isinstance(made, type):
            raise pickle.UnpicklingError(f'it changes {made!r:.80}')
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        dtype = getattr(torch, name, None) if module == 'torch' else None
        if isinstance(dtype, torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f'it calls {module}.{name}')


_ALLOWED: dict[tuple[str, str], Any] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        metadata.Metadata,
        metadata.TensorStorageMetadata,
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata.TensorProperties,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata._MEM_FORMAT_ENCODING,
        filesystem._StorageInfo,
        OrderedDict,
    )
}
_ALLOWED['torch', 'Size'] = torch.Size
# Strided is the only layout here, and where it was written does not matter.
_ALLOWED['torch.serialization', '_get_layout'] = lambda name: torch.strided
for _name in ('PosixPath', 'WindowsPath', 'PurePosixPath'):
    for _module in ('pathlib', 'pathlib._local'):  # before and since 3.13
        _ALLOWED[_module, _name] = lambda *parts: '/'.join(map(str, parts))


def _take_out(node: Any, path: Path_, tensors: dict[Path_, Tensor], small: bool = False) -> Any:
    """Copy nested containers with None for each large tensor, or for each."""
    if isinstance(node, Tensor) and (small or isinstance(node, DTensor) or path[0] in _SHARED):
        tensors[path] = node.detach()
        return None
    if type(node) in (dict, OrderedDict):
        made = type(node)()
        for key, item in node.items():
            if isinstance(key, str | int):
                item = _take_out(item, (*path, key), tensors, small)
            made[key] = item
        return made
    if type(node) is list:
        return [_take_out(item, (*path, i), tensors, small) for i, item in enumerate(node)]
    return node


def _put(node: Any, path: Path_, tensor: Tensor) -> None:
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = tensor


def _popped(rest: Any, folder: Path) -> tuple[dict, dict]:
    """Take where tensors belong and versions of modules out of the rest."""
    keys = rest.pop(_KEYS, None) if isinstance(rest, dict) else None
    try:
        for path in keys.values():
            _put(rest, path, None)
        return keys, rest.pop(_VERSIONS)
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise CheckpointError(
            f'checkpoint {folder} is damaged: {REST} does not say where its '
            'tensors belong. Fix: copy it again, or pass another one'
        ) from error
