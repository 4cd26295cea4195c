"""Run the blocks of README.md and of all pages as a reader would, and say what each costs.

Every page has a clone of the last commit for itself, in which its blocks run from top to bottom::

    python tools/misc/run_pages.py
    python tools/misc/run_pages.py users/retrieval users/detector
    python tools/misc/run_pages.py --times  # writes the times of the first results into README.md

A Python block whose first line is ``# NAME.py`` is saved under that name, a block of assignments
alone is read as a config, any other is run as a script. What ``SKIPPED`` names is listed, with the
reason. CPU seconds are of one thread, with the processes that a block starts and waits for.
"""

import argparse
import ast
import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from documents import Block, blocks_of, documents

ROOT = Path(__file__).resolve().parents[2]
#: Wall seconds of one block.
LIMIT = 1800
#: What is in the page's name, the line that opens a block or its text, and why it is not run.
SKIPPED = [
    (r'--8<--', 'a file that is shown; the commands of the page run it'),
    (r'^(pip|mim) ', 'network'),
    (r'compile-mmcv', 'compiles for an hour'),
    (r'^make (try|demo)', 'makes an environment, from the network'),
    (r'^mmrank new-config', 'data of your own'),
    (r'run_seeds\.py --plan (?!configs/tutorials)', 'data and hours'),
    (r'mmrank train configs/(?!tutorials)\S*(cifar|ml-1m|movielens)', 'data and hours'),
    (r'^python tools/research/.*([\s\\]+.*)?(yaml|records|pt|csv)', 'data or hours'),
    (r'check_field', 'data or hours'),
    (r"my_detector|'val\.json|stock/detector|Model\(config\)", 'a model of your own'),
    (r'# Train on later', 'a model of your own'),
    (r'from-a-wheel', 'mmrank from a wheel; tests/docs runs it'),
]


def blocks(page: Path) -> list[Block]:
    """Bash and Python blocks of a page, from top to bottom."""
    return [x for x in blocks_of(page) if re.search(r'\b(bash|python)\b', x.opening)]


def reason_to_skip(block: Block, root: Path) -> str | None:
    """Why a block is not run, or None."""
    needed = re.search(r'\.needs-([\w-]+)', block.opening)
    needed = needed or re.search(r'^from (rfdetr) ', block.text, re.MULTILINE)
    name = block.page.relative_to(root).as_posix()
    for pattern, reason in SKIPPED:
        if re.search(pattern, f'{name}\n{block.opening}\n{block.text}', re.MULTILINE):
            return reason
    if needed and importlib.util.find_spec(needed[1].replace('-', '_')) is None:
        return f'needs {needed[1].replace("-", " ")}'
    return None


def is_config(text: str) -> bool:
    """Whether a block only assigns, or reads a base: there is nothing to run."""
    body = ast.parse(text).body
    inherits = 'read_base' in text
    return inherits or (all(isinstance(x, (ast.Assign, ast.Expr)) for x in body) and '(' in text)


def command_of(block: Block, start: str, clone: Path) -> list[str]:
    """The command that runs a block in the clone of its page."""
    if 'bash' in block.opening:
        return ['bash', '-euo', 'pipefail', '-c', block.text]
    named = re.match(r'# (\w+\.py)\n', block.text)
    file = clone / (named[1] if named else f'block_{block.line}.py')
    file.write_text(start + block.text, 'utf-8')
    if is_config(start + block.text):
        read = f'from mmengine.config import Config; Config.fromfile({file.name!r})'
        return [sys.executable, '-c', read]
    return [sys.executable, file.name]


def run(command: list[str], clone: Path) -> tuple[int, float, float, str]:
    """Exit status, wall and CPU seconds, and what the command printed."""
    folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        'PATH': f'{folder}:{os.environ["PATH"]}',
        'PYTHONPATH': str(clone),
        'OMP_NUM_THREADS': '1',
    }
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile('w+', errors='replace') as output:
        process = subprocess.Popen(
            command,
            cwd=clone,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what the block has left running
        status = process.wait()
        output.seek(0)
        said = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, time.perf_counter() - begin, sum(after[:2]) - sum(before[:2]), said


def cloned(root: Path, folder: str) -> Path:
    """A clone of the last commit in a folder."""
    clone = Path(folder) / 'mmrank'
    git = shutil.which('git') or 'git'
    subprocess.run([git, 'clone', '-q', str(root), str(clone)], check=True)
    return clone


def write_times(root: Path) -> int:
    """Time the first results, in this environment, and write them into README.md."""
    text = (root / 'README.md').read_text('utf-8')
    places = [f'{name}={sys.prefix}' for name in ('VENV', 'TRY_VENV')]
    for name in ('try', 'demo'):
        with tempfile.TemporaryDirectory() as folder:
            clone = cloned(root, folder)
            # Nothing makes an environment.
            command = ['make', name, '-o', 'env', 'PYTHON=true', *places]
            status, _, cpu, said = run(command, clone)
        if status:
            print(said[-1500:])
            return status
        time_taken = f'{cpu:.0f} CPU seconds' if cpu < 100 else f'{cpu / 60:.0f} CPU minutes'
        print(f'make {name}: {time_taken}', flush=True)
        old = rf'(`make {name}` takes )[\w ]+ CPU (seconds|minutes)'
        text = re.sub(old, rf'\g<1>{time_taken}', text)
    (root / 'README.md').write_text(text, 'utf-8')
    return 0


def run_page(page: Path, root: Path, log: Path | None) -> list[str]:
    """Run one page; a line of ``ok``, ``skipped`` or ``FAILED`` for each block."""
    states = []
    start = ''
    name = page.relative_to(root).as_posix()
    with tempfile.TemporaryDirectory() as folder:
        clone = None
        for block in blocks(page):
            place = f'{name}:{block.line}'
            reason = reason_to_skip(block, root)
            if reason is not None:
                print(f'{place:52} skipped: {reason}', flush=True)
                states.append('skipped')
                continue
            clone = clone or cloned(root, folder)
            command = command_of(block, start if 'python' in block.opening else '', clone)
            if '.start' in block.opening:
                start = block.text
            status, wall, cpu, said = run(command, clone)
            states.append('FAILED' if status else 'ok')
            print(f'{place:52} {states[-1]:7} rc {status}  {wall:6.1f} s  {cpu:6.1f} CPU s')
            if status:
                print(said[-1500:])
            sys.stdout.flush()
            if log is not None:
                with log.open('a', encoding='utf-8') as file:
                    file.write(f'===== {place}\n{said}\n')
    return states


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit status is 1 where a block fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='*', help='parts of paths of pages; all pages by default')
    parser.add_argument('--log', type=Path, help='file for what the blocks print')
    parser.add_argument('--root', type=Path, default=ROOT, help='the git repository')
    parser.add_argument('--times', action='store_true', help='only measure the first results')
    args = parser.parse_args(arguments)
    if args.times:
        return write_times(args.root)
    states = []
    for page in documents(args.root):
        if not args.names or any(name in str(page) for name in args.names):
            states += run_page(page, args.root, args.log)
    for state in ('ok', 'skipped', 'FAILED'):
        print(f'{states.count(state)} {state}')
    return int('FAILED' in states)


if __name__ == '__main__':
    sys.exit(main())
