"""Outputs of the frozen part of a model, stored once, for heads that are trained on them.

A file ``NAME.maps`` holds the feature maps of each sample one after the other in float16, and
``NAME.index`` their places with the data samples. A sample is an image as one random pass of the
training pipeline made it, so a file of two passes has two samples for each image.
"""

import copy
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.model import BaseDataPreprocessor, BaseModule
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from mmrank.errors import UserError
from mmrank.files import replace_atomically
from mmrank.registry import DATASETS, MODELS


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
            entries.append((place, shapes, sample))
            place += flat.numel()
            if 2e-9 * place > limit:
                raise UserError(
                    f'{len(entries)} samples take {2e-9 * place:.1f} GB. Fix: fewer images '
                    '(--images), or a larger --disk'
                )
    with replace_atomically(path.with_suffix('.index')) as part, open(part, 'wb') as file:
        pickle.dump((entries, metainfo), file)


@DATASETS.register_module()
class StoredSamples(Dataset):
    """Feature maps and data samples of :func:`write_samples`.

    Args:
        path: File without a suffix.
    """

    def __init__(self, path: str) -> None:
        with open(Path(path).with_suffix('.index'), 'rb') as file:
            # Written by this tool, beside its own trainings.
            stored = pickle.load(file)  # nosec B301
        self._entries = stored[0]
        self.metainfo = stored[1]
        self._values = np.memmap(Path(path).with_suffix('.maps'), np.float16, 'r')

    def __len__(self) -> int:
        return len(self._entries)

    def get_data_info(self, index: int) -> dict:
        """The classes of a sample, which hooks count."""
        sample = self._entries[index][2]
        return {key: sample.get(key) for key in ('gt_label', 'gt_score') if key in sample}

    def get_cat_ids(self, index: int) -> list[int]:
        """Class indices of a sample."""
        info = self.get_data_info(index)
        if 'gt_score' in info:
            return info['gt_score'].gt(0).nonzero().flatten().tolist()
        return info['gt_label'].flatten().tolist()

    def __getitem__(self, index: int) -> dict:
        place, shapes, sample = self._entries[index]
        maps = []
        for shape in shapes:
            end = place + int(np.prod(shape))
            values = np.array(self._values[place:end], np.float32, subok=False)
            maps.append(torch.from_numpy(values).reshape(shape))
            place = end
        return dict(inputs=tuple(maps), data_samples=copy.deepcopy(sample))


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
        inputs = tuple(_stack(level) for level in data['inputs'])  # collated by level
        return dict(inputs=inputs, data_samples=samples)


def _stack(maps: Sequence[Tensor]) -> Tensor:
    if maps[0].dim() == 1:
        return torch.stack(maps)
    height = max(x.size(1) for x in maps)
    width = max(x.size(2) for x in maps)
    return torch.stack([pad(x, (0, width - x.size(2), 0, height - x.size(1))) for x in maps])


@MODELS.register_module()
class StoredMaps(BaseModule):
    """Stands where the frozen part was: its input is what that part would return."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, maps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The maps as they are."""
        return maps
