"""Try mmdet's detectors on the operators of mmrank: one config of each folder.

Each builds without weights, makes one training step and predicts, on images of 128 x 128. Where
mmcv is compiled, the same is done on its operators, and the figures stand beside each other.
"""

import argparse
import gc
import re
import sys
import warnings
from pathlib import Path

import mmdet
import torch
from mmdet.registry import MODELS
from mmdet.testing import demo_mm_inputs
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.structures import PixelData

from mmrank.mmcv_ops import extension
from mmrank.mmcv_ops.choice import compiled_extension, operators_of

FOLDER = Path(mmdet.__file__).parent / '.mim' / 'configs'
SIZE = 128
#: Configs of these need what a detector of one image has not.
NO_DETECTOR = re.compile(r'Track|SORT|Sort|QDTrack|ReID|VIS|Mask2FormerVideo|BaseMOT')


def without_weights(part):
    """Remove what would be downloaded from a config, in place."""
    if isinstance(part, dict):
        if isinstance(part.get('init_cfg'), dict) and part['init_cfg'].get('type') == 'Pretrained':
            part['init_cfg'] = None
        for key in {'pretrained', 'teacher_ckpt'} & set(part):
            part[key] = None
        for value in part.values():
            without_weights(value)
    elif isinstance(part, list | tuple):
        for value in part:
            without_weights(value)


def inputs(config):
    """Return a batch of two images with boxes, masks and labels of pixels."""
    data = demo_mm_inputs(2, (3, SIZE, SIZE), num_items=[3, 2], with_mask=True, num_classes=5)
    text = 'semantic' in str(config.model) or 'sem_seg' in str(config.model)
    for sample in data['data_samples'] if text else ():
        labels = torch.randint(5, (1, SIZE, SIZE))
        stride = 8 if config.model.type in ('HybridTaskCascade', 'SCNet') else 1
        sample.gt_sem_seg = PixelData(sem_seg=labels[:, ::stride, ::stride])
    return data


def figures(model, config, state, operators):
    """Return loss, sum of the gradients' norms, number, scores and boxes of the predictions."""
    with operators:
        model.load_state_dict(state)
        model.zero_grad()
        model.train()
        torch.manual_seed(0)
        data = model.data_preprocessor(inputs(config), True)
        losses = model(**data, mode='loss')
        terms = [x for name, x in losses.items() if 'loss' in name]
        terms = [sum(x) if isinstance(x, list) else x for x in terms]
        loss = sum(x.mean() for x in terms)
        loss.backward()
        norms = [x.grad.norm().item() for x in model.parameters() if x.grad is not None]
        model.load_state_dict(state)
        model.eval()
        torch.manual_seed(0)
        with torch.no_grad():
            data = model.data_preprocessor(inputs(config), False)
            found = model(**data, mode='predict')
    found = [getattr(x, 'pred_instances', None) for x in found]
    found = [x for x in found if x is not None]
    total = [sum(float(x[key].sum()) for x in found if key in x) for key in ('scores', 'bboxes')]
    return [loss.item(), sum(norms), sum(map(len, found)), *total]


def row(path):
    """Return the line of one config."""
    name = path.relative_to(FOLDER).as_posix()
    config = Config.fromfile(path)
    if 'model' not in config or NO_DETECTOR.search(config.model.type):
        return f'| {name} | | | | no detector of single images |'
    without_weights(config.model)
    MessageHub.get_current_instance().update_info('epoch', 0)
    MessageHub.get_current_instance().update_info('iter', 0)
    torch.manual_seed(0)
    model = MODELS.build(config.model)
    model.init_weights()
    for module in model.modules():
        if hasattr(module, 'epoch'):
            module.epoch = 0
    state = {key: value.clone() for key, value in model.state_dict().items()}
    mine = figures(model, config, state, operators_of(extension))
    compiled = compiled_extension()
    if compiled is None:
        note = 'nothing to compare with'
    else:
        theirs = figures(model, config, state, operators_of(compiled))
        gaps = [abs(a - b) / max(abs(b), 1e-9) for a, b in zip(mine, theirs) if a != b]
        note = f'differs by {max(gaps):.0e}' if gaps else 'equal digits'
    loss, norms, number, scores, _ = mine
    return f'| {name} | {loss:.6g} | {norms:.6g} | {number}, {scores:.6g} | {note} |'


def reason(error):
    """Return an error as a cell of the table."""
    lines = str(error).strip().splitlines() or ['']
    return f'{type(error).__name__}: {lines[0]}'.replace('|', '/')[:110]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('folders', nargs='*', help='of mmdet/.mim/configs; default: all')
    args = parser.parse_args()
    warnings.filterwarnings('ignore')
    register_all_modules()
    print('| config | loss | gradient norms | boxes, scores | beside compiled mmcv |')
    print('|---|---|---|---|---|')
    for folder in sorted(FOLDER.iterdir()):
        paths = [x for x in folder.glob('*.py') if not x.name.startswith('_')]
        if not paths or (args.folders and folder.name not in args.folders):
            continue
        # The shortest name is the plainest detector.
        path = min(paths, key=lambda x: (len(x.name), x.name))
        try:
            print(row(path), flush=True)
        except Exception as error:  # each config may fail in its own way, which is the finding
            name = path.relative_to(FOLDER).as_posix()
            print(f'| {name} | | | | {reason(error)} |', flush=True)
        gc.collect()


if __name__ == '__main__':
    sys.exit(main())
