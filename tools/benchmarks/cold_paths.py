"""What a user waits for before anything is computed, in CPU seconds.

    python tools/benchmarks/cold_paths.py imports
    python tools/benchmarks/cold_paths.py check --images 120000
    python tools/benchmarks/cold_paths.py table --images 5000
    python tools/benchmarks/cold_paths.py train CONFIG

imports: each package after ``import torch``, bytecode cached. check: the check of a synthetic COCO
file compared with ``json.load`` of it. table: ``coco_table.py`` compared with the evaluator alone.
train: ``tools/train.py CONFIG`` up to the first iteration, without workers of the data loader.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mmrank.errors import UserError, show_user_errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import parse_at_least, tool_parser
from lib.common.timing import median_ratio

TOOLS = Path(__file__).resolve().parents[1]
MODULES = ('mmrank', 'mmrank.functional', 'mmengine.registry', 'mmrank.losses')
IMPORT = """
import importlib, sys, time
import torch
start = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - start)
"""
TRAIN = """
import json, pathlib, runpy, sys, time

def note(name):
    print('STAGE', json.dumps([name, time.process_time()]), flush=True)

import torch
note('import torch')
import mmrank.apis.entry_point as entry_point
import mmrank.engine.hooks
note('imports of train.py')

def wrap(name):
    function = getattr(entry_point, name)
    def call(*args, **kwargs):
        found = function(*args, **kwargs)
        note(name)
        return found
    setattr(entry_point, name, call)

for name in ('load', 'check_data', 'build_runner'):
    wrap(name)
from mmengine.runner import loops

def stop(self, *args, **kwargs):
    note('up to the first iteration')
    raise SystemExit(0)

loops.EpochBasedTrainLoop.run_iter = stop
loops.IterBasedTrainLoop.run_iter = stop
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name='__main__')
"""
STAGES = {
    'load': 'config, and the packages it names',
    'check_data': 'check of the data',
    'build_runner': 'runner',
}


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__, repeats=(3, 'turns'))
    parser.add_argument('part', choices=PARTS)
    parser.add_argument('config', nargs='?', help='of train')
    parser.add_argument('--images', type=int, help='default: 120,000 to check, 5,000 in a table')
    args = parse_at_least(parser, images=1, repeats=1)
    if args.images is None:
        args.images = 120_000 if args.part == 'check' else 5000
    if (args.part == 'train') != (args.config is not None):
        parser.error('train CONFIG, and no config for what else there is')
    return args


def child(code: str, *words: str) -> str:
    """Output of Python code in a process of its own, which caches bytecode."""
    environment = dict(os.environ)
    environment.pop('PYTHONDONTWRITEBYTECODE', None)
    done = subprocess.run(
        [sys.executable, '-c', code, *words], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise UserError(
            f'{" ".join(words)} has failed: {done.stderr.strip()[-500:]}. Fix: run it by itself'
        )
    return done.stdout


def measure_imports(args: argparse.Namespace, _: Path) -> list[list]:
    """CPU milliseconds of each package above torch."""
    times = {name: [] for name in MODULES}
    for turn in range(args.repeats + 1):
        for name, own in times.items():
            seconds = float(child(IMPORT, name))
            if turn:
                own.append(seconds)
    return [
        [f'import {name}', 1e3 * statistics.median(own), 1e3 * min(own)]
        for name, own in times.items()
    ]


def measure_training(args: argparse.Namespace, folder: Path) -> list[list]:
    """CPU seconds of the stages of a start."""
    runs = []
    words = (
        *(str(TOOLS / 'train.py'), args.config, '--work-dir', str(folder)),
        *('--cfg-options', 'train_dataloader.num_workers=0'),
        'train_dataloader.persistent_workers=False',
    )
    for _ in range(args.repeats + 1):
        marks = [
            json.loads(line.removeprefix('STAGE'))
            for line in child(TRAIN, *words).splitlines()
            if line.startswith('STAGE')
        ]
        runs.append([0.0, *(seconds for _, seconds in marks)])
    names = [STAGES.get(name, name) for name, _ in marks]
    # The first run writes the bytecode.
    spans = [[*(b - a for a, b in pairwise(run)), run[-1]] for run in runs[1:]]
    return [
        [name, statistics.median(own), min(own)]
        for name, own in zip([*names, 'in all'], zip(*spans))
    ]


def write_document(args: argparse.Namespace, folder: Path) -> Path:
    """A synthetic annotation file."""
    from lib.synthetic.boxes import make_annotations

    document = make_annotations(images=args.images, classes=80, objects=7.0)
    path = folder / 'annotations.json'
    path.write_text(json.dumps(document), 'utf-8')
    return path


def measure_check(args: argparse.Namespace, folder: Path) -> list[list]:
    """CPU seconds of reading and of checking, in turn."""
    from mmrank.datasets.checks.coco_inspect import check_coco_file

    path = write_document(args, folder)

    def read() -> None:
        with path.open(encoding='utf-8') as file:
            json.load(file)

    def check() -> None:
        check_coco_file(path)

    times = {'json.load': [], 'check': []}
    for _ in range(args.repeats):
        for own, step in zip(times.values(), (read, check)):
            gc.collect()
            start = time.process_time()
            step()
            own.append(time.process_time() - start)
    return _rows(times)


def measure_table(args: argparse.Namespace, folder: Path) -> list[list]:
    """CPU seconds of the evaluator alone and of the tool."""
    from lib.coco.evaluators import find_evaluators
    from lib.synthetic.boxes import make_predictions

    path = write_document(args, folder)
    boxes = make_predictions(json.loads(path.read_text('utf-8')), false=20)
    (folder / 'a.bbox.json').write_text(json.dumps(boxes), 'utf-8')
    times = {'evaluator alone': [], 'coco_table.py': []}
    for _ in range(args.repeats):
        one = find_evaluators()[0]
        start = time.process_time()
        one.evaluate(one.load_truth(path), boxes)
        times['evaluator alone'].append(time.process_time() - start)
        before = os.times()
        words = [folder / 'a.bbox.json', '--ann-file', path, '--out-dir', folder / 'out']
        command = [sys.executable, TOOLS / 'benchmarks/coco_table.py', *words]
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        # User and system time of the children.
        times['coco_table.py'].append(sum(after[2:4]) - sum(before[2:4]))
    return _rows(times)


def _rows(times: dict[str, list[float]]) -> list[list]:
    """The ratio is to the first one of the same turn."""
    first = next(iter(times.values()))
    return [[name, statistics.median(own), median_ratio(own, first)] for name, own in times.items()]


#: What measures each part, and the header of its table.
PARTS = {
    'imports': (measure_imports, 'above torch', 'CPU ms, median', 'least'),
    'train': (measure_training, 'stage', 'CPU s, median', 'least'),
    'check': (measure_check, '', 'CPU s, median', 'x json.load'),
    'table': (measure_table, '', 'CPU s, median', 'x evaluator'),
}


@show_user_errors(OSError, subprocess.CalledProcessError)
def main() -> None:
    args = parse_args()
    measure, *header = PARTS[args.part]
    progress = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder, progress.status(f'{args.part} ...'):
        found = measure(args, Path(folder))
    table = Table(*header, title=f'{args.repeats} turns')
    for name, *numbers in found:
        table.add_row(name, *(f'{x:.3g}' for x in numbers))
    Console().print(table)


if __name__ == '__main__':
    sys.exit(main())
