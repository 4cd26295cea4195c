"""Reads what ``mmrank test --out predictions.pkl`` has written, as data.

A pickle can call any function when it is read. Here it may only build tensors and plain containers.
"""

import io
import os
import pickle
from collections import OrderedDict
from typing import Any

import torch

from mmrank.errors import UserError


def read_dump(path: str | os.PathLike) -> list[dict]:
    """Read a dump of predictions."""
    fix = 'Fix: pass the file that `mmrank test CONFIG CHECKPOINT --out predictions.pkl` writes'
    try:
        with open(path, 'rb') as file:
            samples = _DataReader(file).load()
    except FileNotFoundError as error:
        raise UserError(f'prediction file {str(path)!r} does not exist. {fix}') from error
    except Exception as error:
        raise UserError(
            f'prediction file {str(path)!r} cannot be read as data: '
            f'{type(error).__name__}: {error}. {fix}'
        ) from error
    if not isinstance(samples, list) or not all(
        isinstance(x, dict) and 'pred_score' in x for x in samples
    ):
        raise UserError(
            f'{str(path)!r} holds no predictions of a classifier: each sample needs pred_score. '
            f'{fix}; for a detector the *.bbox.json of its CocoMetric'
        )
    if not samples:
        raise UserError(f'{str(path)!r} has no sample: there is nothing to calibrate. {fix}')
    return samples


def _encode(text: str, codec: str) -> bytes:
    """Stands in for any codec: how old protocols of pickle write bytes."""
    if codec != 'latin1':
        raise pickle.UnpicklingError(f'bytes are written as {codec!r}')
    return text.encode('latin1')


#: All that a dump of tensors, numbers and texts needs.
_CALLED = {
    ('_codecs', 'encode'): _encode,
    ('collections', 'OrderedDict'): OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): torch._utils._rebuild_tensor_v2,
    # In place of torch's reader of a storage, which trusts the bytes.
    ('torch.storage', '_load_from_bytes'): lambda x: torch.load(io.BytesIO(x), weights_only=True),
}


class _DataReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CALLED:
            raise pickle.UnpicklingError(f'it calls {module}.{name}, and predictions are data only')
        return _CALLED[module, name]
