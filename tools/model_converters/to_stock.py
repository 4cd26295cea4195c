"""Turn a detector of mmrank into a config and a checkpoint of mmdet.

  python tools/model_converters/to_stock.py CONFIG CHECKPOINT stock/detector

writes stock/detector.py and stock/detector.pth, which need mmdet alone to test and to predict:

  inferencer = DetInferencer('stock/detector.py', 'stock/detector.pth')

The centre of the scores moves into the bias, so boxes and scores stay the same. Averaged weights
(EMAHook) are taken where there are any. Settings of the training go. What becomes a stock
counterpart is printed; an entry without a counterpart is refused by name. With --thresholds
VAL.json VAL.bbox.json, or those of a published checkpoint, the config sets score_thr, and a table
has the score to cut each class at.
"""

import copy
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import nn

from centre_folding import HeadCentre, fold_centres
from mmrank.checkpoint_loading import guard_checkpoints
from mmrank.cli.config_options import add_config_option, add_trust_option
from mmrank.cli.options import tool_parser
from mmrank.engine.resume.matching import compare_states
from mmrank.errors import UserError, show_user_errors
from mmrank.files import check_output, write_atomically
from mmrank.registry import MODELS
from mmrank.runners.config import apply_options, read_config
from mmrank.runners.models import load_all, read_weights
from publish_model import saved_weights, with_thresholds
from stock_config import NAME, stock_config
from thresholds import add_threshold_options, below, thresholds_asked, write_card


def write_stock_model(
    cfg: Config,
    checkpoint: str,
    out: str | Path,
    trust: bool = False,
    thresholds: dict | None = None,
) -> list[str]:
    """Write ``<out>.py`` and ``<out>.pth``, which need mmdet alone; say what changed.

    ``trust`` lets code in the checkpoint run; ``thresholds`` are of ``choose_thresholds``.
    """
    paths = stock_paths(out)
    for path in paths:
        check_output(path, *filter(None, (cfg.filename, checkpoint)))
    if not _has_ranking_head(cfg.get('model')):
        raise UserError(
            f'{cfg.filename or "the config"} has no detection head of {NAME} that a stock head '
            'could replace.\n  Fix: pass the config of the training, with '
            "model.bbox_head.type='mmrank.ListwiseHead' or the like; a stock config needs no "
            'conversion'
        )
    stock_cfg, changes = stock_config(cfg)
    loaded = read_weights(checkpoint, trust)
    model = _build(cfg)
    load_all(model, loaded, checkpoint)
    centres = fold_centres(model)
    _check_folded(model, centres)
    stock = _build(stock_cfg)
    state = model.state_dict()
    # The rest is the losses' of the model.
    differences = [
        one
        for one in compare_states(stock, state)
        if one.kind != 'unexpected' or not re.search(r'(^|[._])loss_cls\.', one.key)
    ]
    if differences:
        key = differences[0].key
        raise UserError(
            f'{key} is not the same in the stock model ({len(differences)} such entries), so these '
            f'weights do not fit.\n  Fix: keep the config of the training, and {NAME} installed'
        )
    kept = OrderedDict((key, state[key].detach().cpu().clone()) for key in stock.state_dict())
    # Versions of the layers, by which PyTorch reads old files.
    kept._metadata = stock.state_dict()._metadata
    meta = with_thresholds(loaded.get('meta'), thresholds)
    if 'thresholds' in meta:
        changes.append(_set_score_thr(stock_cfg.model, meta['thresholds']))
    text = stock_cfg.pretty_text
    weights = saved_weights(kept, meta, text)
    if NAME.encode() in weights:
        what = f'{checkpoint} names {NAME} in meta.dataset_meta, and a stock file must not'
        raise UserError(what, 'rename the classes of the data set')
    write_atomically(weights, paths[1])
    write_atomically(text.encode(), paths[0])
    if 'thresholds' in meta:
        write_card(meta['thresholds'], paths[1])
    for one in centres:
        numbers = ', '.join(f'{x:.2f}' for x in one.centre[:4]) + ', ...' * (len(one.centre) > 4)
        moved = f'the centre of the scores, {numbers}, is in the bias'
        changes.append(f'{one.head}: {one.reason or moved}')
    return changes


def _set_score_thr(model: dict, thresholds: Mapping) -> str:
    """Cut at the score of all classes together, the one number that mmdet takes; say so."""
    settings = model.get('test_cfg') or {}
    place = 'model.test_cfg'
    if 'rcnn' in settings:
        settings = settings['rcnn']
        place += '.rcnn'
    if 'score_thr' not in settings:
        return f'{place} has no score_thr: cut the boxes by meta.thresholds yourself'
    settings['score_thr'] = below(thresholds['all'])
    return (
        f'{place}.score_thr: {thresholds["all"]:.3g}, by {thresholds["figure"]} of all classes; AP '
        'takes 0.0, and meta.thresholds has the score of each class'
    )


def stock_paths(out: str | Path) -> tuple[Path, Path]:
    """``<out>.py`` and ``<out>.pth``; an ending of ``out`` is left out, a folder refused."""
    name = re.sub(r'\.(py|pth)$', '', str(out))
    if Path(name).is_dir():
        fix = f'pass a name in it, such as {Path(name) / "detector"}'
        raise UserError(f'out={str(out)!r} is a folder.\n  Fix: {fix}')
    return Path(f'{name}.py'), Path(f'{name}.pth')


def _has_ranking_head(model: object) -> bool:
    """Whether a head of a model config has a loss of mmrank."""
    if isinstance(model, Mapping):
        loss = model.get('loss_cls')
        kind = str(loss.get('type')) if isinstance(loss, Mapping) else ''
        if 'mmrank.Listwise' in str(model.get('type')) or kind.startswith('mmrank.'):
            return True
        model = list(model.values())
    return isinstance(model, list | tuple) and any(map(_has_ranking_head, model))


def _build(cfg: Config) -> nn.Module:
    scope = cfg.get('default_scope') or 'mmdet'
    try:
        with DefaultScope.overwrite_default_scope(scope):
            # mmdet writes into what it builds from.
            return MODELS.build(copy.deepcopy(cfg.model))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f'the model of {cfg.filename or "the stock config"} cannot be built: {error}\n  Fix: '
            'pass the config of the training; classes of your own belong into its custom_imports'
        ) from error


def _check_folded(model: nn.Module, centres: Iterable[HeadCentre]) -> None:
    """Refuse a head whose scores a stock head would show elsewhere."""
    for one in centres:
        if not one.centre or one.folded:
            continue
        head = model.get_submodule(one.head)
        host = getattr(head, 'host', type(head)).__name__
        remedy = f'keep the config of the training, and {NAME} installed'
        if hasattr(head, 'centre_scores'):
            remedy += (
                f', or pass --cfg-options model.{one.head}.centre_scores=False for the raw scores: '
                'in the same order, but a score_thr means another thing'
            )
        what = f'model.{one.head}: the centre of the scores cannot move into a bias of {host}'
        raise UserError(f'{what}: {one.reason}', remedy)


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config of the training')
    parser.add_argument('checkpoint', help='.pth file of the training')
    parser.add_argument('out', help='name of the new files, without the ending .py or .pth')
    add_config_option(parser)
    add_trust_option(parser)
    add_threshold_options(parser)
    args = parser.parse_args()
    guard_checkpoints(args.trust_checkpoint)
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    thresholds = thresholds_asked(args)
    for line in write_stock_model(
        cfg, args.checkpoint, args.out, args.trust_checkpoint, thresholds
    ):
        print(line)
    print('Wrote {} and {}'.format(*stock_paths(args.out)))


if __name__ == '__main__':
    sys.exit(main())
