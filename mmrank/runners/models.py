"""Models of configs, and trained ones from checkpoints."""

import copy
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn

from mmrank.checkpoint_loading import CheckpointError, load_checkpoint
from mmrank.engine.resume.matching import compare_states, differences_table, model_state
from mmrank.errors import UserError
from mmrank.registry import MODELS


def read_weights(path: str, trust: bool = False) -> dict:
    """Read a checkpoint as data, unless ``trust``; a UserError if it holds no weights."""
    if not Path(path).is_file():
        what = f'checkpoint {path!r} does not exist'
        raise UserError(what, 'pass the .pth file that training wrote into its work folder')
    checkpoint = load_checkpoint(path, map_location='cpu', trust=trust)
    state = model_state(checkpoint) if isinstance(checkpoint, dict) else None
    if not state or not isinstance(state, dict):
        what = f'{path} is not a checkpoint: it has no weights of a model'
        raise CheckpointError(what, 'pass the .pth file of a training')
    return checkpoint


def load_all(model: nn.Module, checkpoint: Mapping, name: str) -> None:
    """Load all weights of checkpoint ``name``; a UserError if they are not this model's."""
    state = model_state(checkpoint)
    found = compare_states(model, state)
    if found:
        raise CheckpointError(
            f'checkpoint {name} does not fit this config:\n{differences_table(found)}\n  Fix: pass '
            'the checkpoint of this config, or the config of this checkpoint'
        )
    state = {key.removeprefix('module.'): value for key, value in state.items()}
    model.load_state_dict(state, strict=False)  # compared above


def build_model(cfg: Config) -> nn.Module:
    """Build the model of a config as mmengine's Runner does, which the top level may preprocess."""
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = copy.deepcopy(cfg.model)  # mmdet writes into what it builds from
    if cfg.get('data_preprocessor'):
        model.setdefault('data_preprocessor', cfg.data_preprocessor)
    return MODELS.build(model)


def trained_model(cfg: Config, checkpoint: str, trust: bool = False) -> nn.Module:
    """Build the model of a config with all weights of a checkpoint, in evaluation mode."""
    model = build_model(cfg)
    load_all(model, read_weights(checkpoint, trust), checkpoint)
    return model.eval()
