"""Models of a release: found by name, checked by hash, ready to be asked."""

import difflib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from torch import nn

import mmrank
from mmrank.apis.entry_point import check_packages, read_config
from mmrank.apis.trained_model import read_weights, trained_model
from mmrank.errors import UserError

INDEX_NAME = 'model-index.yml'


def index_folder() -> Path:
    """Folder of ``model-index.yml``: of the installed package or checkout.

    Raises:
        UserError: If there is none.
    """
    package = Path(mmrank.__file__).parent
    for folder in (package / '.mim', package.parent):
        if (folder / INDEX_NAME).is_file():
            return folder
    raise UserError(
        f'mmrank in {package} has no {INDEX_NAME}.\n  Fix: install mmrank '
        'again, by pip install mmrank or pip install -e . in a checkout'
    )


def read_model_index(folder: Path | None = None) -> dict[str, dict]:
    """Entries of the model index by name.

    Args:
        folder: Folder of ``model-index.yml``. None: that of mmrank.

    Returns:
        What ``Models`` holds, with the fields of the files.
    """
    folder = folder or index_folder()
    index = yaml.safe_load((folder / INDEX_NAME).read_text('utf-8'))
    entries = {}
    for name in index['Import']:
        metafile = yaml.safe_load((folder / name).read_text('utf-8'))
        entries |= {entry['Name']: entry for entry in metafile['Models']}
    return entries


def released_models() -> list[str]:
    """Names of the models whose weights are released."""
    entries = read_model_index().items()
    return [name for name, entry in entries if entry.get('Weights')]


def find_weights(name: str, folder: str | Path = '.') -> Path:
    """Find the weights of a model in a folder and check them.

    Args:
        name: Name of the model, as the table of models has it.
        folder: Folder with ``<name>-<hash>.pth``, the file of a release.

    Returns:
        The file; its SHA-256 begins with the hash in its name.

    Raises:
        UserError: If there is no such model, no file or more than one, or the file is damaged.
    """
    folder = Path(folder)
    pattern = re.compile(re.escape(name) + r'-([0-9a-f]{8})\.pth')
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [path for path in files if pattern.fullmatch(path.name)]
    if not found:
        raise UserError(_absent(name, folder))
    if len(found) > 1:
        raise UserError(
            f'{folder} has several files of {name}: {", ".join(path.name for path in found)}.\n  '
            'Fix: keep the one that you want'
        )
    (path,) = found
    expected = pattern.fullmatch(path.name).group(1)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(expected):
        raise UserError(
            f'{path} is damaged: its SHA-256 begins with {digest[:8]}, its '
            f'name says {expected}.\n  Fix: delete it and get it again'
        )
    return path


def _absent(name: str, folder: Path) -> str:
    released = released_models()
    if name not in released:
        close = difflib.get_close_matches(name, released, 1)
        hint = f'take {close[0]!r}, or one' if close else 'take one'
        return f'{name!r} is no released model.\n  Fix: {hint} of {", ".join(released) or "none"}'
    weights = str(read_model_index()[name]['Weights'])
    where = f'get it from {weights}' if '://' in weights else 'build it'
    what = 'does not exist' if not folder.is_dir() else 'has no file of it'
    return (
        f'{name}: folder {str(folder)!r} {what}; expected '
        f'{weights.rpartition("/")[2]}.\n  Fix: {where}'
        + (' and put it there' if '://' in weights else '')
        + f', or: python tools/misc/build_release.py --out {folder} {name}'
    )


def load_model(
    name: str, folder: str | Path = '.', device: str = 'cpu', config: str | None = None
) -> nn.Module:
    """Build a released model and load its weights from a folder.

    As ``mmdet.apis.init_detector`` does, it puts ``cfg`` and ``dataset_meta`` on the model, so
    ``mmdet.apis.inference_detector`` takes a detector that comes from here::

        model = load_model('retinanet_r18_fpn_stable-ap_bccd', 'release')

    Args:
        name: Name of the model, as the table of models has it.
        folder: Folder with ``<name>-<hash>.pth``.
        device: Where to put the model.
        config: Config file of the model. None: that of the model index.

    Returns:
        The model, in evaluation mode.

    Raises:
        UserError: If there is no such model, its file is missing or damaged, or it does not fit the
            config.
    """
    weights = find_weights(name, folder)
    if config is None:
        entry = read_model_index().get(name)
        if entry is None:
            raise UserError(
                f'{name!r} is not in the model index of mmrank '
                f'{mmrank.__version__}.\n  Fix: pass its config, config=...'
            )
        config = str(index_folder() / entry['Config'])
    cfg = read_config(config)
    check_packages(cfg)
    model = trained_model(cfg, str(weights), device)
    meta = read_weights(str(weights)).get('meta')
    model.cfg = cfg
    model.dataset_meta = meta.get('dataset_meta', {}) if isinstance(meta, Mapping) else {}
    return model
