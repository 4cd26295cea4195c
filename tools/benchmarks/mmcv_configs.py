"""Try mmdet's detectors on the operators of mmrank: one config of each folder.

Each builds without weights, makes one training step and predicts, on images of 128 x 128, or of
320 x 320 where it needs more. Where mmcv is compiled, the same is done on its operators, and the
figures stand beside each other. Of a folder the plainest config counts that runs; those that ask
for an operator that mmrank has not are listed, too.
"""

import argparse
import gc
import re
import sys
import warnings
from math import isnan
from pathlib import Path

import mmdet
import torch
from mmdet.registry import MODELS
from mmdet.testing import demo_mm_inputs
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.logging import MessageHub, MMLogger
from mmengine.structures import PixelData

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.mmcv_operators import compiled_extension, operators_of
from mmrank.mmcv_ops import extension

FOLDER = Path(mmdet.__file__).parent / '.mim' / 'configs'
SIZES = 128, 320
#: Weights are random: boxes of lower scores count, too.
SCORE = 0.005
TRIES = 4
FIGURES = 'loss', 'gradient norms', 'number', 'scores', 'boxes'
#: Configs of these need what a detector of one image has not.
NO_DETECTOR = re.compile(r'Track|SORT|Sort|QDTrack|ReID|VIS|Mask2FormerVideo|BaseMOT')


def prepare(part):
    """Remove what would be downloaded from a config, and let boxes pass, in place."""
    if isinstance(part, dict):
        if 'score_thr' in part:
            part['score_thr'] = SCORE
        if isinstance(part.get('init_cfg'), dict) and part['init_cfg'].get('type') == 'Pretrained':
            part['init_cfg'] = None
        for key in {'pretrained', 'teacher_ckpt'} & set(part):
            part[key] = None
        for value in part.values():
            prepare(value)
    elif isinstance(part, list | tuple):
        for value in part:
            prepare(value)


def inputs(config, size):
    """Return a batch of two images with boxes, masks and labels of pixels."""
    data = demo_mm_inputs(2, (3, size, size), num_items=[3, 2], with_mask=True, num_classes=5)
    text = 'semantic' in str(config.model) or 'sem_seg' in str(config.model)
    for sample in data['data_samples'] if text else ():
        labels = torch.randint(5, (1, size, size))
        stride = 8 if config.model.type in ('HybridTaskCascade', 'SCNet') else 1
        sample.gt_sem_seg = PixelData(sem_seg=labels[:, ::stride, ::stride])
    return data


def figures(model, config, state, operators, size):
    """Return :data:`FIGURES`: the last three are of the predictions, norms and values summed."""
    with operators:
        model.load_state_dict(state, strict=False)
        model.zero_grad()
        model.train()
        torch.manual_seed(0)
        data = model.data_preprocessor(inputs(config, size), True)
        losses = model(**data, mode='loss')
        terms = [x for name, x in losses.items() if 'loss' in name]
        terms = [sum(x) if isinstance(x, list) else x for x in terms]
        loss = sum(x.mean() for x in terms)
        loss.backward()
        norms = [x.grad.norm().item() for x in model.parameters() if x.grad is not None]
        model.load_state_dict(state, strict=False)
        model.eval()
        torch.manual_seed(0)
        with torch.no_grad():
            data = model.data_preprocessor(inputs(config, size), False)
            found = model(**data, mode='predict')
    found = [getattr(x, 'pred_instances', None) for x in found]
    found = [x for x in found if x is not None]
    total = [sum(float(x[key].sum()) for x in found if key in x) for key in ('scores', 'bboxes')]
    return [loss.item(), sum(norms), sum(map(len, found)), *total]


def compare(mine, model, config, state, size):
    """Return how figures differ from compiled mmcv's."""
    compiled = compiled_extension()
    if compiled is None:
        return 'nothing to compare with'
    try:
        theirs = figures(model, config, state, operators_of(compiled), size)
    except RuntimeError as error:
        missing = re.match(r'(\w+)_impl: implementation for device cpu not found', str(error))
        if missing:
            return f'has no `{missing[1]}` on a CPU'
        raise
    gaps = [
        (abs(a - b) / max(abs(b), 1e-9), name)
        for name, a, b in zip(FIGURES, mine, theirs, strict=True)
        if a != b and not (isnan(a) and isnan(b))
    ]
    if not gaps:
        return 'equal digits'
    return ', '.join(f'{name} {gap:.0e} apart' for gap, name in gaps)


def row(path, size):
    """Return the line of one config; empty where it is not a detector of single images."""
    name = path.relative_to(FOLDER).as_posix()
    config = Config.fromfile(path)
    if 'model' not in config or NO_DETECTOR.search(config.model.type):
        return ''
    prepare(config.model)
    MessageHub.get_current_instance().update_info('epoch', 0)
    MessageHub.get_current_instance().update_info('iter', 0)
    torch.manual_seed(0)
    model = MODELS.build(config.model)
    model.init_weights()
    for module in model.modules():
        if hasattr(module, 'epoch'):
            module.epoch = 0
    state = {key: value.clone() for key, value in model.state_dict().items()}
    mine = figures(model, config, state, operators_of(extension), size)
    note = compare(mine, model, config, state, size)
    loss, norms, number, scores, _ = mine
    return f'| {name} | {loss:.6g} | {norms:.6g} | {number}, {scores:.6g} | {note} |'


def reason(path, error):
    """Return the line of a config that fails."""
    name = path.relative_to(FOLDER).as_posix()
    lines = str(error).strip().splitlines() or ['']
    operator = re.match(r"mmcv's operator '(\w+)'", lines[0])
    text = f'refused: `{operator[1]}`' if operator else f'{type(error).__name__}: {lines[0]}'
    return f'| {name} | | | | {text[:110].replace("|", "/")} |'


def rows(folder):
    """Yield the lines of a folder: refused configs, and the plainest that runs."""
    paths = [x for x in folder.glob('*.py') if not x.name.startswith('_')]
    failed = ''
    for path in sorted(paths, key=lambda x: (len(x.name), x.name))[:TRIES]:
        for size in SIZES:
            try:
                found = row(path, size)
                failed = ''
            except NotImplementedError as error:
                yield reason(path, error)
                break
            except Exception as error:  # each fails in its own way, which is the finding
                failed = failed or reason(path, error)
                if isinstance(error, RuntimeError):
                    continue  # images may be too small
                break
            finally:
                gc.collect()
            if found:
                yield found
                return
            break
    if failed:
        yield failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('folders', nargs='*', help='of mmdet/.mim/configs; default: all')
    args = parser.parse_args()
    warnings.filterwarnings('ignore')
    MMLogger.get_instance('mmengine', log_level='ERROR')
    register_all_modules()
    print('| config | loss | gradient norms | boxes, scores | beside compiled mmcv |')
    print('|---|---|---|---|---|')
    for folder in sorted(x for x in FOLDER.iterdir() if x.name != '_base_'):
        if not args.folders or folder.name in args.folders:
            for line in rows(folder):
                print(line, flush=True)


if __name__ == '__main__':
    sys.exit(main())
