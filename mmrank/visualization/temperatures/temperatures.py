"""The learned temperatures of a model, from memory or a checkpoint."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mmrank.checkpoint_loading import load_checkpoint
from mmrank.errors import UserError
from mmrank.state.sample_averages import SampleTemperature
from mmrank.state.shard_files import SHARD_FILES_KEY, whole_tables


@dataclass(frozen=True)
class Temperatures:
    """Temperature of every sample of a training set.

    Attributes:
        name: Which, where a model has several: ``'image_temperature'``.
        tau: (N,) float32.
        visited: (N,) bool, False for samples that were in no batch yet and still have the
            temperature that all started with.
    """

    name: str
    tau: np.ndarray
    visited: np.ndarray


def temperatures_of(model: nn.Module) -> list[Temperatures]:
    """The temperatures that the losses of a model hold.

    Where they are spread over processes, all have to call it.

    Args:
        model: With as many :class:`SampleTemperature` as it likes.

    Returns:
        One entry for each, copied to the host.
    """
    found = {
        name: (module.gathered('tau'), module.gathered('log_s'))
        for name, module in model.named_modules()
        if isinstance(module, SampleTemperature)
    }
    return _named(found)


def read_temperatures(path: str | os.PathLike, trust: bool = False) -> list[Temperatures]:
    """The temperatures in a checkpoint.

    Args:
        path: ``.pth`` file of a training with ``mmrank.ISogCLRLoss`` or another loss with a
            :class:`SampleTemperature`.
        trust: Whether the file may run code when it is loaded.

    Returns:
        One entry for each.

    Raises:
        ValueError: If the file is no checkpoint, or has no temperatures.
    """
    path = Path(path)
    fix = 'Fix: pass the .pth file of a training with mmrank.ISogCLRLoss'
    if not path.is_file():
        raise ValueError(f'checkpoint {path} does not exist. {fix}')
    try:
        content = load_checkpoint(path, 'cpu', trust=trust)
        states = content.get('state_dict', content)
        shards = content.get(SHARD_FILES_KEY)
        if shards:
            states = {**states, **whole_tables(path, shards)}
    except UserError:
        raise
    except Exception as error:
        raise ValueError(
            f'{path} is not a checkpoint: {type(error).__name__}: {error}. {fix}'
        ) from error
    found = {
        key.removesuffix('.tau'): (tau, states[f'{key[:-4]}.log_s'])
        for key, tau in states.items()
        if key.endswith('.tau') and f'{key[:-4]}.log_s' in states
    }
    if not found:
        raise ValueError(
            f'{path} has no per-sample temperatures: no NAME.tau beside a NAME.log_s. {fix}'
        )
    return _named(found)


def _named(found: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> list[Temperatures]:
    """Shorten names to their last part where that tells them apart."""
    short = [name.rpartition('.')[2] for name in found]
    names = short if len(set(short)) == len(short) else list(found)
    return [
        Temperatures(
            name,
            np.array(tau.detach().cpu(), dtype=np.float32),
            np.isfinite(log_s.detach().cpu().numpy()),
        )
        for name, (tau, log_s) in zip(names, found.values())
    ]
