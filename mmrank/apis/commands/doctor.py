"""Print what of the stack is installed and what of it works.

Works with any part absent. The exit status is 1 when the core (torch, mmengine, mmrank) is broken,
else 0.
"""

import argparse
import importlib
import platform
import sys
from typing import NamedTuple

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


def last_line(error: BaseException) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines() or ['']
    return f'{type(error).__name__}: {lines[-1]}'[:120]


def check_module(name: str, purpose: str, fix: str) -> Row:
    """Import a module and return its version."""
    try:
        module = importlib.import_module(name)
    except Exception as error:
        # A binary that does not fit its neighbours fails in many ways.
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            return Row(name, '', BROKEN if name in CORE else ABSENT, f'{purpose}; {fix}')
        return Row(name, '', BROKEN, last_line(error))
    return Row(name, str(getattr(module, '__version__', '')), OK, purpose)


def check_ops() -> Row:
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
        return Row('mmcv.ops', '', state, f'{last_line(error)}; {fix}')
    return Row('mmcv.ops', '+'.join(devices), OK, f'{whose}; nms returns the right boxes')


def check_machine() -> list[Row]:
    """Use a GPU once; find the compilers that compiling mmcv needs."""
    machine, reason = {}, 'not found'
    try:
        from mmengine.utils.dl_utils import collect_env

        machine = collect_env()
    except Exception as error:
        # Absent or broken, or without distutils, which it imports.
        reason = f'mmengine cannot tell: {last_line(error)}'
    built = ''
    try:
        import torch

        built = torch.version.cuda or ''
        if torch.cuda.is_available():
            torch.ones(2, device='cuda').sum().item()
            gpus = [f'{key}: {value}' for key, value in machine.items() if key.startswith('GPU ')]
            rows = [Row('CUDA', built, OK, '; '.join(gpus) or 'a GPU works')]
        else:
            why = 'no GPU seen' if built else 'this torch is built without CUDA'
            rows = [Row('CUDA', built, ABSENT, f'{why}; everything runs on CPU')]
    except Exception as error:
        rows = [Row('CUDA', built, BROKEN if built else ABSENT, last_line(error))]
    for name in ('GCC', 'NVCC'):
        found = machine.get(name, 'n/a')
        if found not in ('n/a', 'Not Available'):
            rows.append(Row(name, found.split()[-1], OK, found))
        elif name == 'GCC':
            rows.append(Row(name, '', ABSENT, f'{reason}; only compiling mmcv needs it'))
    return rows


def collect() -> list[Row]:
    """Return all rows, the core first."""
    registry = Row('mmrank.registry', '', OK, 'StableAPLoss builds from a config')
    try:
        from mmrank.registry import MODELS

        MODELS.build({'type': 'mmrank.StableAPLoss'})
    except Exception as error:
        registry = Row('mmrank.registry', '', BROKEN, last_line(error))
    tested = (3, 10) <= sys.version_info[:2] <= (3, 12)
    note = sys.executable if tested else 'supported and tested are 3.10, 3.11 and 3.12'
    modules = [check_module(*module) for module in MODULES]
    return [
        Row('Python', platform.python_version(), OK, note),
        *modules[:3],
        registry,
        modules[3],
        check_ops(),
        *modules[4:],
        *check_machine(),
    ]


def show(rows: list[Row]) -> None:
    """Print the table, with rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Column, Table
    except ModuleNotFoundError:
        for row in rows:
            print(f'{row.state:7} {row.name:16} {row.version:14} {row.note}')
        return
    columns = [Column(title, overflow='fold') for title in ('part', 'version', 'state', 'note')]
    table = Table(*columns, title='mmrank: what is here and what works')
    for row in rows:
        style = STYLES[row.state]
        # Notes hold text of other packages: no markup in it.
        note = row.note.replace('[', r'\[')
        table.add_row(row.name, row.version, f'[{style}]{row.state}[/{style}]', note)
    Console().print(table)


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='example:\n  mmrank doctor',
    ).parse_args()
    rows = collect()
    show(rows)
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
