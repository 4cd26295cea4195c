"""Trained models, and released ones by name: checked by hash, ready to be asked."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn

import mmrank
from mmrank.apis.entry_point import check_packages, read_config
from mmrank.checkpoint_loading import CheckpointError, load_checkpoint, sha256_of
from mmrank.engine.resume.matching import compare_states, differences_table, model_state
from mmrank.errors import UserError
from mmrank.registry import MODELS

INDEX_NAME = 'model-index.yml'


def read_weights(path: str, trust: bool = False) -> dict:
    """Read a checkpoint as data, unless ``trust``; a UserError if it holds no weights."""
    if not Path(path).is_file():
        raise UserError(
            f'checkpoint {path!r} does not exist.\n  Fix: pass the .pth file that training wrote '
            'into its work folder'
        )
    checkpoint = load_checkpoint(path, map_location='cpu', trust=trust)
    state = model_state(checkpoint) if isinstance(checkpoint, dict) else None
    if not state or not isinstance(state, dict):
        raise CheckpointError(
            f'{path} is no checkpoint: it holds no state of a model.\n  Fix: pass the .pth file of '
            'a training'
        )
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


def trained_model(
    cfg: Config, checkpoint: str, device: str = 'cpu', trust: bool = False
) -> nn.Module:
    """Build the model of a config with all weights of a checkpoint, in evaluation mode."""
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = MODELS.build(cfg.model)
    load_all(model, read_weights(checkpoint, trust), checkpoint)
    return model.to(device).eval()


def index_folder() -> Path:
    """Folder of ``model-index.yml``, of the installed package or checkout, or a UserError."""
    package = Path(mmrank.__file__).parent
    for folder in (package / '.mim', package.parent):
        if (folder / INDEX_NAME).is_file():
            return folder
    raise UserError(
        f'mmrank in {package} has no {INDEX_NAME}.\n  Fix: install mmrank again, by pip install '
        'mmrank or pip install -e . in a checkout'
    )


def read_model_index() -> dict[str, dict]:
    """Entries of the model index by name."""
    folder = index_folder()
    files = yaml.safe_load((folder / INDEX_NAME).read_text('utf-8'))['Import']
    return {
        entry['Name']: entry
        for file in files
        for entry in yaml.safe_load((folder / file).read_text('utf-8'))['Models']
    }


def released_models() -> list[str]:
    """Names of the models whose weights are released."""
    return [name for name, entry in read_model_index().items() if entry.get('Weights')]


def find_weights(name: str, folder: str | Path = '.', released_only: bool = True) -> Path:
    """Find the one ``<name>-<hash>.pth`` whose SHA-256 begins with that hash, or a UserError.

    ``released_only``: the hash must be the one of the model index, if that has one.
    """
    folder = Path(folder)
    pattern = re.compile(re.escape(name) + r'-([0-9a-f]{8})\.pth')
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [match for path in files if (match := pattern.fullmatch(path.name))]
    if not found:
        raise UserError(_absent(name, folder))
    if len(found) > 1:
        raise UserError(
            f'{folder} has several files of {name}: {", ".join(match[0] for match in found)}.\n  '
            'Fix: keep the one that you want'
        )
    path, expected = folder / found[0][0], found[0][1]
    digest = sha256_of(path)
    if not digest.startswith(expected):
        raise UserError(
            f'{path} is damaged: its SHA-256 begins with {digest[:8]}, its name says {expected}.\n'
            '  Fix: delete it and get it again'
        )
    released = read_model_index().get(name, {}).get('Metadata', {}).get('Weights SHA-256')
    if released_only and released not in (None, digest):
        raise UserError(
            f'{path} is not the released file: its SHA-256 is {digest}, the model index has '
            f'{released}.\n  Fix: get the released file, or pass config=... to load your own'
        )
    return path


def _absent(name: str, folder: Path) -> str:
    released = released_models()
    if name not in released:
        close = difflib.get_close_matches(name, released, 1)
        hint = f'take {close[0]!r}, or one' if close else 'take one'
        return f'{name!r} is no released model.\n  Fix: {hint} of {", ".join(released) or "none"}'
    weights = str(read_model_index()[name]['Weights'])
    file = weights.rpartition('/')[2]
    what = 'has no file of it' if folder.is_dir() else 'does not exist'
    source = f'get it from {weights} and put' if '://' in weights else 'put'
    return (
        f'{name}: folder {str(folder)!r} {what}; expected {file}.\n  Fix: {source} it there, or '
        'train its config, publish the checkpoint with tools/misc/publish_model.py, and pass '
        'config=... to load your own'
    )


def load_model(
    name: str, folder: str | Path = '.', device: str = 'cpu', config: str | None = None
) -> nn.Module:
    """Build a released model and load its weights from a folder; in evaluation mode.

    It puts ``cfg`` and ``dataset_meta`` on the model, as ``mmdet.apis.inference_detector``
    expects::

        model = load_model('retinanet_r18_fpn_stable-ap_bccd', 'release')

    Args:
        name: Name of the model, as the table of models has it.
        folder: Folder with ``<name>-<hash>.pth``. Without ``config`` it must be the released file,
            by the hash of the model index.
        device: Where to put the model.
        config: Config file of the model. None: the config of the model index.

    Raises:
        UserError: If there is no such model, its file is missing or damaged, or does not fit the
            config.
    """
    weights = find_weights(name, folder, released_only=config is None)
    if config is None:
        entry = read_model_index().get(name)
        if entry is None:
            raise UserError(
                f'{name!r} is not in the model index of mmrank {mmrank.__version__}.\n  Fix: pass '
                'its config, config=...'
            )
        config = str(index_folder() / entry['Config'])
    cfg = read_config(config)
    check_packages(cfg)
    model = trained_model(cfg, str(weights), device)
    meta = read_weights(str(weights)).get('meta')
    model.cfg = cfg
    model.dataset_meta = meta.get('dataset_meta', {}) if isinstance(meta, Mapping) else {}
    return model
