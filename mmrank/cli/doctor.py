"""Print what of the stack is installed, and what of it works.

    mmrank doctor
    mmrank doctor --json    # for a report of a fault, or a script

exit status: 0, also without OpenMMLab; 1 where torch, mmengine or mmrank is broken, or where two
distributions wrote the folder of a package.
"""

import importlib
import json
import platform
import sys
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError
from mmrank.runners.openmmlab import DISTRIBUTIONS, check_owner

STYLES = {'ok': 'green', 'absent': 'yellow', 'broken': 'bold red', 'twice': 'bold red'}
CORE = {'torch', 'mmengine', 'mmrank', 'mmrank.registry'}


def _either(name: str) -> str:
    return f'pip install {DISTRIBUTIONS[name][0]}, or the upstream distribution'


#: Use of each package, and what installs it.
PACKAGES = {
    'torch': ('everything', 'pip install torch'),
    'mmengine': ('configs, runner, registries', _either('mmengine')),
    'mmrank': ('this suite', 'pip install -e .'),
    'mmcv': ('image transforms', _either('mmcv')),
    'mmdet': ('detection', _either('mmdet')),
    'mmpretrain': ('retrieval and classification', _either('mmpretrain')),
    'torchvision': ('data sets, backbones', 'pip install torchvision'),
    'numpy': ('arrays', 'pip install numpy'),
    'scipy': ('statistics of the seeds tool', 'pip install scipy'),
    'matplotlib': ('plots', 'pip install matplotlib'),
    'pycocotools': ('COCO metrics', 'pip install pycocotools'),
    'cv2': ('reading images', 'pip install opencv-python-headless'),
}


def _import(name: str, use: str) -> tuple[str, str]:
    """Version and use of a package; a UserError where two distributions wrote its folder."""
    check_owner(name)
    return str(getattr(importlib.import_module(name), '__version__', '')), use


def _build_loss() -> tuple[str, str]:
    from mmrank.registry import MODELS

    MODELS.build({'type': 'mmrank.StableAPLoss'})
    return '', 'StableAPLoss builds from a config'


def _run_ops() -> tuple[str, str]:
    """Run mmcv's operators once, and say whose they are."""
    import torch
    from mmcv.ops import nms

    from mmrank.mmcv_ops import compiled_extension

    boxes = torch.tensor([[0.0, 0, 9, 9], [1, 1, 9, 9], [20, 20, 29, 29]])
    scores = torch.tensor([0.9, 0.8, 0.7])
    devices = ['cpu', 'cuda'] if torch.cuda.is_available() else ['cpu']
    for device in devices:
        kept = nms(boxes.to(device), scores.to(device), iou_threshold=0.5)[1].tolist()
        if kept != [0, 2]:
            raise RuntimeError(f'nms on {device} kept {kept}')
    whose = 'compiled' if compiled_extension() else "mmrank's own, on torchvision"
    return '+'.join(devices), f'{whose}; nms returns the right boxes'


def _use_gpu() -> tuple[str, str]:
    import torch

    if not torch.cuda.is_available():
        return torch.version.cuda or '', 'no GPU: everything runs on CPU'
    torch.ones(2, device='cuda').sum().item()
    return torch.version.cuda or '', torch.cuda.get_device_name()


def _row(name: str, check: Callable[[], tuple[str, str]], fix: str) -> tuple[str, str, str, str]:
    """Name, version, state, and what it is for or what is wrong."""
    try:
        version, note = check()
    except UserError as error:  # says the fix
        return name, '', 'twice', str(error)
    except Exception as error:  # a binary that does not fit its neighbours fails in many ways
        is_absent = isinstance(error, ModuleNotFoundError) and error.name in PACKAGES
        lines = str(error).strip().splitlines() or ['']
        note = f'{type(error).__name__}: {lines[-1]:.100}; {fix}'
        return name, '', 'absent' if is_absent else 'broken', note
    return name, version, 'ok', note


def main() -> int:
    args = tool_parser(__doc__, json=(False, 'print the rows as JSON')).parse_args()
    rows = [('Python', platform.python_version(), 'ok', sys.executable)]
    for name, (use, fix) in PACKAGES.items():
        rows.append(_row(name, partial(_import, name, use), f'{use}; {fix}'))
    rows.append(_row('mmrank.registry', _build_loss, 'pip install -e .'))
    rows.append(_row('mmcv.ops', _run_ops, 'pip install mmcv-lite: mmrank has its operators'))
    rows.append(_row('CUDA', _use_gpu, 'everything else runs on CPU'))
    broken = []
    for name, _, state, _ in rows:
        if state == 'twice' or (state == 'broken' and name in CORE):
            broken.append(name)
    if args.json:
        names = ('part', 'version', 'state', 'note')
        print(json.dumps([dict(zip(names, row)) for row in rows], indent=2))
        return int(bool(broken))
    table = Table('part', 'version', 'state', Column('note', overflow='fold'))
    for name, version, state, note in rows:
        # Notes hold text of other packages: no markup in it.
        table.add_row(name, version, Text(state, STYLES[state]), Text(note))
    Console().print(table)
    works = {name for name, _, state, _ in rows if state == 'ok'}
    if broken:
        print(f'The core is broken: {", ".join(broken)}.')
        return 1
    for needed, what in (
        ({'mmdet', 'mmcv', 'mmcv.ops'}, 'detectors'),
        ({'mmpretrain'}, 'retrieval and classification'),
    ):
        print(f'{"can" if needed <= works else "cannot"} train and test {what}')
    return 0
