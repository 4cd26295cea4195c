"""Checkpoints to hand out: weights alone, readable as data, named by hash."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from mmrank.apis.trained_model import read_weights
from mmrank.engine.resume.matching import model_state
from mmrank.errors import UserError
from mmrank.files.atomic_file import write_atomically

#: What a user of the weights needs to know of the training.
_META = ('dataset_meta', 'cfg', 'epoch', 'iter', 'seed', 'mmengine_version')
#: Characters of the hash in the name, as in the names of OpenMMLab.
_SHORT = 8


def publish_model(
    checkpoint: str, out: str | Path, trust: bool = False
) -> tuple[Path, str]:
    """Write the weights of a checkpoint as a file to hand out.

    Optimiser, schedulers, random states and logs are left out. What is left
    are tensors and plain values, which ``torch.load(weights_only=True)``
    reads without any allow-list. State of the losses stays: heads need it
    at test time, and a training may go on from it.

    Args:
        checkpoint: The file of a training.
        out: Name of the new file, ``<name>.pth``; ``<name>-<hash>.pth`` is
            written.
        trust: Let the old file run code; see :func:`read_weights`.

    Returns:
        Path of the new file and its SHA-256 in hexadecimal.

    Raises:
        UserError: If the checkpoint cannot be read or holds no weights, or
            ``out`` does not end in ``.pth``.
        OSError: If the file cannot be written.
    """
    out = Path(out)
    if out.suffix != '.pth':
        raise UserError(
            f'out={str(out)!r} must end in .pth, as in retinanet.pth'
        )
    loaded = read_weights(checkpoint, trust)
    old = model_state(loaded)
    state = OrderedDict(
        (key, value.detach().cpu().clone())
        for key, value in old.items()
        if isinstance(value, torch.Tensor)
    )
    if not state:
        raise UserError(
            f'{checkpoint} has no tensor among {sorted(loaded)[:10]}. Fix: '
            'pass the .pth file of a training'
        )
    # Versions of the layers, by which PyTorch reads old files.
    state._metadata = getattr(old, '_metadata', OrderedDict())
    meta = loaded.get('meta')
    meta = meta if isinstance(meta, Mapping) else {}
    content = dict(
        meta={key: _plain(meta[key]) for key in _META if key in meta},
        state_dict=state,
    )
    buffer = BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    path = out.with_name(f'{out.stem}-{digest[:_SHORT]}.pth')
    write_atomically(data, path)
    return path, digest


def _plain(value: object) -> object:
    """The value without types that only an allow-list would let through."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bool | int | float | str | None):
        return value
    return str(value)
