"""Make a checkpoint ready to hand out: weights alone, a hash in the name.

  python tools/model_converters/publish_model.py work_dirs/NAME/epoch_12.pth NAME.pth

writes NAME-1a2b3c4d.pth, which torch.load(weights_only=True) reads. Its config names no folder of
this machine. For mmdet without mmrank convert it with tools/model_converters/to_stock.py.
With --thresholds VAL.json VAL.bbox.json the score to cut each class at goes along: in
meta.thresholds, for mmrank test --threshold auto, and as a table beside it.
"""

import hashlib
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from mmrank.cli.config_options import add_trust_option
from mmrank.cli.options import tool_parser
from mmrank.engine.resume.matching import model_state
from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_atomically
from mmrank.runners.models import read_weights
from thresholds import add_threshold_options, thresholds_asked, write_card

#: What a user of the weights needs to know of the training, beside its config.
_META = ('dataset_meta', 'epoch', 'iter', 'seed', 'mmengine_version', 'thresholds')
#: Lines of the config that are about this machine alone, the folder of a data set, and a path.
_OWN_LINES = re.compile(r'^(?:work_dir|load_from|resume|data_root) = .*\n?', re.MULTILINE)
_DATA_ROOT = re.compile(r"""\bdata_root=(?:None|'[^'\n]*'|"[^"\n]*")""")
_PATH = re.compile(r"""(['"])(?:[/~]|[A-Za-z]:[\\/])[^'"\n]*?([^'"\n/\\]*)[/\\]*\1""")


def publish_model(
    checkpoint: str, out: str | Path, trust: bool = False, thresholds: dict | None = None
) -> tuple[Path, str]:
    """Write ``<name>-<hash>.pth`` for ``out='<name>.pth'``; return its path and SHA-256.

    ``trust`` lets code in the checkpoint run; ``thresholds`` are of ``choose_thresholds``.
    """
    out = Path(out)
    if out.suffix != '.pth':
        raise UserError(f'out={str(out)!r} must end in .pth, as in retinanet.pth')
    loaded = read_weights(checkpoint, trust)
    old = model_state(loaded)
    state = OrderedDict(
        (key, x.detach().cpu().clone()) for key, x in old.items() if isinstance(x, torch.Tensor)
    )
    if not state:
        raise UserError(f'{checkpoint} has no tensor.\n  Fix: pass the .pth file of a training')
    # Versions of the layers, by which PyTorch reads old files.
    state._metadata = getattr(old, '_metadata', OrderedDict())
    meta = with_thresholds(loaded.get('meta'), thresholds)
    text = meta.get('cfg')
    if isinstance(text, str):
        text = _PATH.sub(r'\1\2\1', _DATA_ROOT.sub("data_root=''", _OWN_LINES.sub('', text)))
    data = saved_weights(state, meta, text)
    digest = hashlib.sha256(data).hexdigest()
    path = out.with_name(f'{out.stem}-{digest[:8]}.pth')
    write_atomically(data, path)
    if 'thresholds' in meta:
        write_card(meta['thresholds'], path)
    return path, digest


def with_thresholds(meta: object, thresholds: dict | None) -> dict:
    """The meta of a checkpoint with these thresholds, or with its own."""
    meta = dict(meta) if isinstance(meta, Mapping) else {}
    return meta | ({} if thresholds is None else dict(thresholds=thresholds))


def saved_weights(state: Mapping, meta: Mapping, config: str | None) -> bytes:
    """The bytes of a file with a state, a config, and what a user needs of the meta of another."""
    kept = {key: _plain(meta[key]) for key in _META if key in meta}
    if config is not None:
        kept['cfg'] = config
    buffer = BytesIO()
    torch.save(dict(meta=kept, state_dict=state), buffer)
    return buffer.getvalue()


def _plain(value: object) -> object:
    """The value without types that only an allow-list would let through."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if isinstance(value, bool | int | float | str | None) else str(value)


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('checkpoint', help='.pth file of a training')
    parser.add_argument('out', help='name of the new file; the hash goes before its .pth')
    add_trust_option(parser)
    add_threshold_options(parser)
    args = parser.parse_args()
    thresholds = thresholds_asked(args)
    path, digest = publish_model(args.checkpoint, args.out, args.trust_checkpoint, thresholds)
    print(f'Wrote {path}, {path.stat().st_size / 1e6:.1f} MB')
    print(f'sha256 {digest}')


if __name__ == '__main__':
    sys.exit(main())
