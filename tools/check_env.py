"""Print what of the stack is installed and what of it works.

Works with any part absent. The exit status is 1 when the core (torch, mmengine, mmrank) is broken,
else 0.
"""

import argparse
import importlib
import platform
import sys
from dataclasses import dataclass

OK, ABSENT, BROKEN = 'ok', 'absent', 'broken'
STYLES = {OK: 'green', ABSENT: 'yellow', BROKEN: 'bold red'}


@dataclass
class Row:
    """One line of the table.

    Attributes:
        name: What was looked at.
        version: Its version, or empty.
        state: ``ok``, ``absent`` or ``broken``.
        note: What it is for, or what is wrong and how to mend it.
        is_core: Whether nothing works without it.
    """

    name: str
    version: str
    state: str
    note: str
    is_core: bool = False


def last_line(error: BaseException) -> str:
    """Return an error as one line."""
    lines = str(error).strip().splitlines() or ['']
    return f'{type(error).__name__}: {lines[-1]}'[:120]


def check_module(name: str, purpose: str, fix: str, is_core: bool = False) -> Row:
    """Import a module and return its version.

    Args:
        name: Import name.
        purpose: What it is for.
        fix: What to do when it is not there.
        is_core: Whether nothing works without it.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            state = BROKEN if is_core else ABSENT
            return Row(name, '', state, f'{purpose}; {fix}', is_core)
        return Row(name, '', BROKEN, last_line(error), is_core)
    except Exception as error:
        # A binary that does not fit its neighbours fails in many ways.
        return Row(name, '', BROKEN, last_line(error), is_core)
    version = str(getattr(module, '__version__', ''))
    return Row(name, version, OK, purpose, is_core)


def check_ops() -> Row:
    """Run mmcv's compiled ops once."""
    fix = 'build mmcv for this torch: python3 tools/bootstrap.py'
    try:
        import torch
        from mmcv.ops import nms
    except ModuleNotFoundError as error:
        return Row('mmcv.ops', '', ABSENT, f'{last_line(error)}; {fix}')
    except Exception as error:
        return Row('mmcv.ops', '', BROKEN, f'{last_line(error)}; {fix}')
    boxes = [[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 9.0, 9.0], [20.0, 20.0, 29, 29]]
    works = []
    devices = ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]
    for device in devices:
        try:
            kept = nms(
                torch.tensor(boxes, device=device),
                torch.tensor([0.9, 0.8, 0.7], device=device),
                iou_threshold=0.5,
            )[1].tolist()
        except Exception as error:
            return Row('mmcv.ops', device, BROKEN, f'{last_line(error)}; {fix}')
        if kept != [0, 2]:
            return Row('mmcv.ops', device, BROKEN, f'nms kept {kept}; {fix}')
        works.append(device)
    return Row('mmcv.ops', '+'.join(works), OK, 'nms returns the right boxes')


def describe_machine() -> tuple[dict, str]:
    """What mmengine finds out about GPUs, CUDA and the compiler.

    Returns:
        mmengine's answer and, where it has none, the reason.
    """
    try:
        from mmengine.utils.dl_utils import collect_env

        return collect_env(), ''
    except Exception as error:
        # Absent or broken, or without distutils, which it imports.
        return {}, f'mmengine cannot tell: {last_line(error)}'


def check_cuda(machine: dict) -> Row:
    """Use a GPU once.

    Args:
        machine: See :func:`describe_machine`.
    """
    try:
        import torch
    except Exception as error:
        return Row('CUDA', '', ABSENT, last_line(error))
    built = torch.version.cuda or ''
    if not torch.cuda.is_available():
        reason = 'no GPU seen' if built else 'this torch is built without CUDA'
        return Row('CUDA', built, ABSENT, f'{reason}; everything runs on CPU')
    try:
        torch.ones(2, device='cuda').sum().item()
    except Exception as error:
        return Row('CUDA', built, BROKEN, last_line(error))
    gpus = [f'{k}: {v}' for k, v in machine.items() if k.startswith('GPU ')]
    return Row('CUDA', built, OK, '; '.join(gpus) or 'a GPU works')


def check_compilers(machine: dict, reason: str) -> list[Row]:
    """The compilers that building mmcv needs.

    Args:
        machine: See :func:`describe_machine`.
        reason: Why there is no answer.
    """
    rows = []
    for name in ('GCC', 'NVCC'):
        found = machine.get(name, 'n/a')
        if found not in ('n/a', 'Not Available'):
            rows.append(Row(name, found.split()[-1], OK, found))
        elif name == 'GCC':
            note = f'{reason or "not found"}; only building mmcv needs it'
            rows.append(Row(name, '', ABSENT, note))
    return rows


def check_registry() -> Row:
    """Build something that is registered by mmrank."""
    try:
        from mmrank.registry import MODELS

        MODELS.build({'type': 'mmrank.StableAPLoss'})
    except Exception as error:
        return Row('mmrank.registry', '', BROKEN, last_line(error), True)
    return Row('mmrank.registry', '', OK, 'StableAPLoss builds from a config')


def collect() -> list[Row]:
    """Return all rows, the core first."""
    python = Row('Python', platform.python_version(), OK, sys.executable, True)
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        python.note = 'supported and tested are 3.10, 3.11 and 3.12'
    either = 'pip install {}, or the upstream distribution'
    machine, reason = describe_machine()
    rows = [
        python,
        check_module('torch', 'everything', 'pip install torch', True),
        check_module(
            'mmengine', 'configs, runner, registries', either.format('onedl-mmengine'), True
        ),
        check_module('mmrank', 'this suite', 'pip install -e .', True),
        check_registry(),
        check_module('mmcv', 'image transforms', either.format('onedl-mmcv')),
        check_ops(),
        check_module('mmdet', 'detection', either.format('onedl-mmdetection')),
        check_module(
            'mmpretrain', 'retrieval and classification', either.format('onedl-mmpretrain')
        ),
        check_cuda(machine),
    ]
    for name, purpose in (
        ('torchvision', 'data sets, backbones'),
        ('numpy', 'arrays'),
        ('scipy', 'statistics of the seeds tool'),
        ('matplotlib', 'plots'),
        ('pycocotools', 'COCO metrics'),
        ('cv2', 'reading images'),
    ):
        package = 'opencv-python-headless' if name == 'cv2' else name
        rows.append(check_module(name, purpose, f'pip install {package}'))
    return rows + check_compilers(machine, reason)


def show(rows: list[Row]) -> None:
    """Print the table, with rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        for row in rows:
            print(f'{row.state:7} {row.name:16} {row.version:14} {row.note}')
        return
    table = Table(title='mmrank: what is here and what works')
    for title in ('part', 'version', 'state', 'note'):
        table.add_column(title, overflow='fold')
    for row in rows:
        style = STYLES[row.state]
        state = f'[{style}]{row.state}[/{style}]'
        # Notes hold text of other packages: no markup in it.
        note = row.note.replace('[', r'\[')
        table.add_row(row.name, row.version, state, note)
    Console().print(table)


def main() -> int:
    """Check and print; return the exit status."""
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='example:\n  python tools/check_env.py',
    ).parse_args()
    rows = collect()
    show(rows)
    broken = [row.name for row in rows if row.is_core and row.state != OK]
    if broken:
        print(f'The core is broken: {", ".join(broken)}.')
        return 1
    uses = [r.name for r in rows if r.state == OK]
    for name, what in (
        ('mmdet', 'train and test detectors'),
        ('mmpretrain', 'train and test retrieval and classification'),
    ):
        needed = {name, 'mmcv', 'mmcv.ops'} if name == 'mmdet' else {name}
        print(f'{"can" if needed <= set(uses) else "cannot"} {what}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
