"""Outputs of the frozen part of a model, stored once, for heads that are trained on them.

A file ``NAME.maps`` holds the feature maps of each sample one after the other in float16, and
``NAME.index`` their places with the data samples, as plain containers: whoever may write into the
folder can run no code. A sample is an image as one random pass of the training pipeline made it, so
a file of two passes has two samples for each image.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.model import BaseDataPreprocessor, stack_batch
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import Dataset

from mmrank.checkpoint_loading import load_checkpoint
from mmrank.errors import UserError
from mmrank.files import replace_atomically
from mmrank.registry import DATASETS, MODELS

#: Where the classes of data samples, and of what is in them, come from.
_CLASSES = {
    'BaseDataElement': 'mmengine.structures',
    'InstanceData': 'mmengine.structures',
    'LabelData': 'mmengine.structures',
    'PixelData': 'mmengine.structures',
    'DetDataSample': 'mmdet.structures',
    'BitmapMasks': 'mmdet.structures.mask',
    'PolygonMasks': 'mmdet.structures.mask',
    'DataSample': 'mmpretrain.structures',
}


def _plain(value: Any) -> Any:
    """A data sample, or a part of one, as plain containers."""
    kind = type(value).__name__
    if isinstance(value, BaseDataElement):
        return dict(kind=kind, metainfo=_plain(value.metainfo), data=_plain(dict(value.items())))
    if kind in ('BitmapMasks', 'PolygonMasks'):
        return dict(kind=kind, masks=_plain(value.masks), height=value.height, width=value.width)
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value] if kind == 'list' else tuple(map(_plain, value))
    return value


def _from_plain(value: Any) -> Any:
    """What :func:`_plain` was given."""
    if isinstance(value, list):
        return [_from_plain(x) for x in value]
    if not isinstance(value, dict):
        return value
    found = {key: _from_plain(x) for key, x in value.items()}
    if 'kind' not in found:
        return found
    name = found.pop('kind')
    made = getattr(import_module(_CLASSES[name]), name)
    return made(**found.pop('data', {}), **found)


def write_samples(
    path: Path,
    batches: Iterable[dict],
    frozen: Callable[[dict], tuple[Sequence[Tensor], Any]],
    metainfo: dict,
    limit: float,
) -> None:
    """Store what ``frozen`` makes of batches of one image; the index comes last.

    Args:
        path: File without a suffix.
        batches: Batches of one image, of a data loader.
        frozen: Takes a batch, returns feature maps (1, C, H, W) or (1, C) and the data sample.
        metainfo: Of the data set, for its evaluator.
        limit: GB that the file may have.

    Raises:
        UserError: If the file would be larger, or a value does not fit float16.
    """
    entries = []
    place = 0
    with replace_atomically(path.with_suffix('.maps')) as part, open(part, 'wb') as file:
        for batch in batches:
            maps, sample = frozen(batch)
            shapes = [tuple(x.shape[1:]) for x in maps]
            flat = torch.cat([x.flatten() for x in maps]).cpu()
            if not flat.abs().max() < 65504:
                raise UserError(
                    f'a feature map has a value of {flat.abs().max():.3g}, which float16 does not '
                    'hold. Fix: weights that are trained, by --checkpoint'
                )
            file.write(flat.half().numpy().data)
            entries.append((place, shapes, _plain(sample)))
            place += flat.numel()
            if 2e-9 * place > limit:
                raise UserError(
                    f'{len(entries)} samples take {2e-9 * place:.1f} GB. Fix: fewer images '
                    '(--images), or a larger --disk'
                )
    index = dict(entries=entries, metainfo=_plain(metainfo), size=place)
    with replace_atomically(path.with_suffix('.index')) as part:
        torch.save(index, part)


@DATASETS.register_module()
class StoredSamples(Dataset):
    """Feature maps and data samples of :func:`write_samples`.

    Args:
        path: File without a suffix.
    """

    def __init__(self, path: str) -> None:
        index = Path(path).with_suffix('.index')
        maps = Path(path).with_suffix('.maps')
        try:
            if not (index.is_file() and maps.is_file()):
                raise ValueError('a file is not there')
            stored = load_checkpoint(index, trust=False)
            self.metainfo = stored['metainfo']
            self._entries = [(int(place), list(x), dict(y)) for place, x, y in stored['entries']]
            self._values = np.memmap(maps, np.float16, 'r')
            if len(self._values) != stored['size']:
                raise ValueError(f'{maps.name} is torn')
            self[len(self) - 1]
        except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise UserError(
                f'stored features {path} are damaged: {error}. Fix: remove the folder '
                f'{Path(path).parent}, to store them again'
            ) from error

    def __len__(self) -> int:
        return len(self._entries)

    def get_data_info(self, index: int) -> dict:
        """The classes of a sample, which hooks count."""
        sample = self._entries[index][2]['data']
        return {key: sample[key] for key in ('gt_label', 'gt_score') if key in sample}

    def __getitem__(self, index: int) -> dict:
        place, shapes, sample = self._entries[index]
        maps = []
        for shape in shapes:
            end = place + int(np.prod(shape))
            values = np.array(self._values[place:end], np.float32, subok=False)
            maps.append(torch.from_numpy(values).reshape(shape))
            place = end
        return dict(inputs=tuple(maps), data_samples=_from_plain(copy.deepcopy(sample)))


@MODELS.register_module()
class StackStoredMaps(BaseDataPreprocessor):
    """Stacks the maps of each level, filled up with zeros to the largest of the batch.

    Classifiers of mmpretrain pass ``batch_augments``, which mix images: stored features are of
    single ones.
    """

    def __init__(self, batch_augments: dict | None = None) -> None:
        super().__init__()

    def forward(self, data: dict, training: bool = False) -> dict:
        """Levels of (B, C, H, W), and data samples that state the size of the batch."""
        data = self.cast_data(data)
        samples = data['data_samples']
        sizes = [x.batch_input_shape for x in samples if 'batch_input_shape' in x]
        if sizes:
            largest = tuple(map(max, zip(*sizes)))
            for sample in samples:
                sample.set_metainfo(dict(batch_input_shape=largest))
        inputs = tuple(stack_batch([*level]) for level in data['inputs'])  # collated by level
        return dict(inputs=inputs, data_samples=samples)
