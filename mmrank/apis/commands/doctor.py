"""Print what of the stack is installed and what of it works.

Example:
    mmrank doctor

OpenMMLab may be absent. The exit status is 1 when the core (torch, mmengine, mmrank) is broken.
"""

import importlib
import platform
import sys
from typing import NamedTuple

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from mmrank.apis.common.command_line import tool_parser

OK, ABSENT, BROKEN = 'ok', 'absent', 'broken'
STYLES = {OK: 'green', ABSENT: 'yellow', BROKEN: 'bold red'}
CORE = {'Python', 'torch', 'mmengine', 'mmrank', 'mmrank.registry'}
EITHER = 'pip install {}, or the upstream distribution'
#: Import name, what it is for, and what to do when it is not there.
MODULES = (
    ('torch', 'everything', 'pip install torch'),
    ('mmengine', 'configs, runner, registries', EITHER.format('onedl-mmengine')),
    ('mmrank', 'this suite', 'pip install -e .'),
    ('mmcv', 'image transforms', EITHER.format('onedl-mmcv')),
    ('mmdet', 'detection', EITHER.format('onedl-mmdetection')),
    ('mmpretrain', 'retrieval and classification', EITHER.format('onedl-mmpretrain')),
    ('torchvision', 'data sets, backbones', 'pip install torchvision'),
    ('numpy', 'arrays', 'pip install numpy'),
    ('scipy', 'statistics of the seeds tool', 'pip install scipy'),
    ('matplotlib', 'plots', 'pip install matplotlib'),
    ('pycocotools', 'COCO metrics', 'pip install pycocotools'),
    ('cv2', 'reading images', 'pip install opencv-python-headless'),
)


class Row(NamedTuple):
    """One line of the table: a part, its version and state, what it is for or what is wrong."""

    name: str
    version: str
    state: str
    note: str


def _last_line(error: BaseException) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines() or ['']
    return f'{type(error).__name__}: {lines[-1]}'[:120]


def _check_module(name: str, purpose: str, fix: str) -> Row:
    """Import a module and return its version."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        # A binary that does not fit its neighbours fails in many ways.
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            return Row(name, '', BROKEN if name in CORE else ABSENT, f'{purpose}; {fix}')
        return Row(name, '', BROKEN, _last_line(error))
    return Row(name, str(getattr(module, '__version__', '')), OK, purpose)


def _check_ops() -> Row:
    """Run mmcv's operators once, and say whose they are."""
    fix = 'pip install mmcv-lite: mmrank has its operators'
    devices = []
    try:
        import torch
        from mmcv.ops import nms

        from mmrank.mmcv_ops import compiled_extension

        boxes = torch.tensor([[0.0, 0, 9, 9], [1, 1, 9, 9], [20, 20, 29, 29]])
        scores = torch.tensor([0.9, 0.8, 0.7])
        for device in ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]:
            kept = nms(boxes.to(device), scores.to(device), iou_threshold=0.5)[1].tolist()
            if kept != [0, 2]:
                return Row('mmcv.ops', device, BROKEN, f'nms kept {kept}; {fix}')
            devices.append(device)
        whose = 'compiled' if compiled_extension() else 'those of mmrank, on torchvision'
    except Exception as error:
        state = ABSENT if isinstance(error, ModuleNotFoundError) else BROKEN
        return Row('mmcv.ops', '', state, f'{_last_line(error)}; {fix}')
    return Row('mmcv.ops', '+'.join(devices), OK, f'{whose}; nms returns the right boxes')


def _check_gpu() -> Row:
    """Use a GPU once."""
    built = ''
    try:
        import torch

        built = torch.version.cuda or ''
        if torch.cuda.is_available():
            torch.ones(2, device='cuda').sum().item()
            return Row('CUDA', built, OK, torch.cuda.get_device_name())
    except Exception as error:
        return Row('CUDA', built, BROKEN if built else ABSENT, _last_line(error))
    why = 'no GPU seen' if built else 'this torch is built without CUDA'
    return Row('CUDA', built, ABSENT, f'{why}; everything runs on CPU')


def _check_registry() -> Row:
    """Build a loss from a config."""
    try:
        from mmrank.registry import MODELS

        MODELS.build({'type': 'mmrank.StableAPLoss'})
    except Exception as error:
        return Row('mmrank.registry', '', BROKEN, _last_line(error))
    return Row('mmrank.registry', '', OK, 'StableAPLoss builds from a config')


def collect() -> list[Row]:
    """Return all rows."""
    python = Row('Python', platform.python_version(), OK, sys.executable)
    modules = [_check_module(*module) for module in MODULES]
    return [python, *modules, _check_registry(), _check_ops(), _check_gpu()]


def main() -> int:
    tool_parser(__doc__).parse_args()
    rows = collect()
    table = Table('part', 'version', 'state', Column('note', overflow='fold'))
    for row in rows:
        # Notes hold text of other packages: no markup in it.
        table.add_row(row.name, row.version, Text(row.state, STYLES[row.state]), Text(row.note))
    Console().print(table)
    broken = [row.name for row in rows if row.name in CORE and row.state != OK]
    if broken:
        print(f'The core is broken: {", ".join(broken)}.')
        return 1
    works = {row.name for row in rows if row.state == OK}
    for needed, what in (
        ({'mmdet', 'mmcv', 'mmcv.ops'}, 'detectors'),
        ({'mmpretrain'}, 'retrieval and classification'),
    ):
        print(f'{"can" if needed <= works else "cannot"} train and test {what}')
    return 0
