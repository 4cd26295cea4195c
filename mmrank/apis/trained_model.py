"""A trained model, ready to be asked."""

import re
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.resume.matching import (
    compare_states,
    differences_table,
    model_state,
    without_folded,
)
from mmrank.errors import UserError
from mmrank.registry import MODELS


def read_weights(path: str, trust: bool = False) -> dict:
    """Read a checkpoint as data.

    Args:
        path: The file.
        trust: Let the file run code; see :func:`mmrank.checkpoint_loading.load_checkpoint`.

    Returns:
        The checkpoint.

    Raises:
        UserError: If there is no such file, or it holds no weights.
    """
    if not Path(path).is_file():
        raise UserError(
            f'checkpoint {path!r} does not exist.\n  Fix: pass the .pth file '
            'that training wrote into its work folder'
        )
    checkpoint = load_checkpoint(path, map_location='cpu', trust=trust)
    if not (
        isinstance(checkpoint, dict)
        and isinstance(model_state(checkpoint), dict)
        and model_state(checkpoint)
    ):
        raise CheckpointError(
            f'{path} is no checkpoint: it holds no state of a model.\n  Fix: '
            'pass the .pth file of a training'
        )
    return checkpoint


def trained_model(
    cfg: Config, checkpoint: str, device: str = 'cpu', trust: bool = False
) -> nn.Module:
    """Build the model of a config and load its weights, all of them.

    Args:
        cfg: The config.
        checkpoint: The file.
        device: Where to put the model.
        trust: See :func:`read_weights`.

    Returns:
        The model, in evaluation mode.

    Raises:
        UserError: If the weights are not those of this model.
    """
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = MODELS.build(cfg.model)
    load_all(model, read_weights(checkpoint, trust), checkpoint)
    return model.to(device).eval()


def load_all(model: nn.Module, checkpoint: Mapping, name: str) -> None:
    """Load the weights of a checkpoint, all of them.

    Args:
        model: The model.
        checkpoint: What :func:`read_weights` returns.
        name: Its file, for messages.

    Raises:
        UserError: If the weights are not those of this model.
    """
    state = model_state(checkpoint)
    found = without_folded(compare_states(model, state), checkpoint)
    if found:
        raise CheckpointError(
            f'checkpoint {name} does not fit this config:\n{differences_table(found)}\n  Fix: pass '
            'the checkpoint of this config, or the config of this checkpoint'
        )
    state = {re.sub(r'^module\.', '', key): x for key, x in state.items()}
    model.load_state_dict(state, strict=False)  # compared above
