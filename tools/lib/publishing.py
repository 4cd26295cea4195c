"""Checkpoints to hand out: weights alone, readable as data, named by hash."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope

from lib.centre_folding import HeadCentre, fold_centres
from mmrank.apis.entry_point import check_packages, read_config, walk_types
from mmrank.apis.models import load_all, read_weights
from mmrank.engine.resume.matching import FOLDED, folded_heads, model_state, read_saved_config
from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.registry import MODELS

#: What a user of the weights needs to know of the training.
_META = ('dataset_meta', 'cfg', 'epoch', 'iter', 'seed', 'mmengine_version', FOLDED)
#: Characters of the hash in the name, as in the names of OpenMMLab.
SHORT_HASH = 8
#: Lines of the config that are about this machine alone, the folder of a data set, and a path.
_OWN_LINES = re.compile(r'^(?:work_dir|load_from|resume|data_root) = .*\n?', re.MULTILINE)
_DATA_ROOT = re.compile(r"""\bdata_root=(?:None|'[^'\n]*'|"[^"\n]*")""")
_PATH = re.compile(r"""(['"])(?:[/~]|[A-Za-z]:[\\/])[^'"\n]*?([^'"\n/\\]*)[/\\]*\1""")
#: Part of the state of a listwise dense head.
_LISTWISE = '.loss_cls.loss.'
#: Types that a text from a file may name: a class by its registered name.
_NAMED = re.compile(r'((mmrank|mmdet|mmpretrain|mmcv|mmengine)\.)?\w+')


@dataclass(frozen=True)
class Published:
    """A file to hand out, its hash in hexadecimal, and the centres of the scores of its heads."""

    path: Path
    sha256: str
    centres: tuple[HeadCentre, ...] = ()


def publish_model(
    checkpoint: str, out: str | Path, trust: bool = False, config: str | None = None
) -> Published:
    """Write the weights of a checkpoint as a file to hand out.

    It has tensors and plain values of weights and losses, which ``torch.load(weights_only=True)``
    reads. What belongs to a run is left out: equal weights make equal files. The centre of the
    scores of a ranking loss moves into the bias, see
    :func:`lib.centre_folding.fold_centres`.

    Args:
        checkpoint: The file of a training.
        out: Name of the new file, ``<name>.pth``; ``<name>-<hash>.pth`` is written.
        trust: Let the old file run code; see :func:`~mmrank.apis.models.read_weights`.
        config: Config file of the training. None: the text in the checkpoint, of registered classes
            only.

    Raises:
        UserError: If the checkpoint cannot be read, holds no weights or is not one of the config, a
            config is needed, or ``out`` does not end in ``.pth``.
        OSError: If the file cannot be written.
    """
    out = Path(out)
    if out.suffix != '.pth':
        raise UserError(f'out={str(out)!r} must end in .pth, as in retinanet.pth')
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
    meta = dict(meta) if isinstance(meta, Mapping) else {}
    centres = _fold(checkpoint, loaded, state, config)
    folded = {x.head: x.centre for x in centres if x.folded and any(x.centre)}
    if folded or folded_heads(loaded):
        meta[FOLDED] = {**dict(meta.get(FOLDED) or {}), **folded}
    if isinstance(meta.get('cfg'), str):
        meta['cfg'] = without_folders(meta['cfg'])
    meta = {key: plain_value(meta[key]) for key in _META if key in meta}
    data = saved_bytes(dict(meta=meta, state_dict=state))
    digest = hashlib.sha256(data).hexdigest()
    path = out.with_name(f'{out.stem}-{digest[:SHORT_HASH]}.pth')
    write_atomically(data, path)
    return Published(path, digest, tuple(centres))


def without_folders(config: str) -> str:
    """The text of a config without the folders of the machine that trained: names of files stay."""
    text = _DATA_ROOT.sub("data_root=''", _OWN_LINES.sub('', config))
    return _PATH.sub(r'\1\2\1', text)


def saved_bytes(content: object) -> bytes:
    """The bytes that ``torch.save`` writes."""
    buffer = BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def describe_centre(centre: HeadCentre) -> str:
    """Describe whether the centre of a head's scores was folded into the bias."""
    if centre.folded:
        numbers = [f'{x:.2f}' for x in centre.centre[:4]] + ['...'] * (len(centre.centre) > 4)
        return (
            f'{centre.head}: the centre of the scores, {", ".join(numbers)}, '
            'is in the bias; a stock config shows the same scores'
        )
    return f'{centre.head}: a stock config does not show the same scores: {centre.reason}'


def _fold(name: str, loaded: Mapping, state: dict, config: str | None) -> list[HeadCentre]:
    """Fold the centres of a checkpoint into ``state``, in place."""
    cfg = read_config(config) if config else _saved_config(name, loaded)
    # A config that was passed is compared with the weights, whatever its heads are.
    if cfg is None or not (config or has_ranking_head(cfg.get('model'))):
        return []
    if not cfg.get('model'):
        raise UserError(
            f'{config} has no model.\n  Fix: pass the config of the training, --config CONFIG'
        )
    check_packages(cfg)
    scope = cfg.get('default_scope') or 'mmengine'
    try:
        with DefaultScope.overwrite_default_scope(scope):
            model = MODELS.build(cfg.model)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f'{name}: the model of {config or "the config in it"} cannot be built: {error}\n  Fix: '
            'pass the config of the training, --config CONFIG; classes of your own belong into its '
            'custom_imports'
        ) from error
    load_all(model, loaded, name)
    before = {key: x.clone() for key, x in model.state_dict().items()}
    centres = fold_centres(model)
    after = model.state_dict()
    for key, value in state.items():
        bare = re.sub(r'^module\.', '', key)
        if bare in after and not torch.equal(before[bare], after[bare]):
            value.copy_(after[bare])
    return centres


def _saved_config(name: str, loaded: Mapping) -> Config | None:
    """The config in a checkpoint; None where no head needs one."""
    meta = loaded.get('meta')
    text = meta.get('cfg') if isinstance(meta, Mapping) else None
    settings = read_saved_config(text) if isinstance(text, str) else {}
    model = settings.get('model')
    # A type may be the path of any function, which building would call.
    if isinstance(model, dict) and all(_NAMED.fullmatch(kind) for kind in walk_types(model)):
        return Config(dict(model=model, default_scope=settings.get('default_scope')))
    if any(_LISTWISE in key for key in model_state(loaded)):
        raise UserError(
            f'{name} has heads with a centre of the scores (keys with {_LISTWISE!r}), which '
            'belongs into their bias, and keeps no config that can be read as data.\n  Fix: pass '
            'the config of the training, --config CONFIG'
        )
    return None


def has_ranking_head(model: object) -> bool:
    """Whether a head of a model config has a loss of mmrank."""
    if isinstance(model, Mapping):
        loss = model.get('loss_cls')
        kind = str(loss.get('type')) if isinstance(loss, Mapping) else ''
        if 'mmrank.Listwise' in str(model.get('type')) or kind.startswith('mmrank.'):
            return True
        model = list(model.values())
    return isinstance(model, list | tuple) and any(map(has_ranking_head, model))


def plain_value(value: object) -> object:
    """The value without types that only an allow-list would let through."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain_value(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bool | int | float | str | None):
        return value
    return str(value)
