"""Count the files of mmrank that a training step of a loss enters.

The fewer there are, the easier a loss is to follow::

    PYTHONPATH=. python tests/files_entered.py

Per loss: files entered by one forward and backward; what one reads to understand the value, which
is the files entered by the forward and that of
the class, and their lines; and the lines of the functions that run, with
their docstrings.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from mmrank import losses

ROOT = Path(losses.__file__).resolve().parents[1]


def functions_entered(call: Callable[[], object]) -> dict[Path, set]:
    """Code of the functions of mmrank that a call runs, by file."""
    found = set()

    def note(frame, event, _):
        if event == 'call':
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        # Not on a thread of autograd, which is not watched.
        with torch.autograd.set_multithreading_enabled(False):
            call()
    finally:
        sys.setprofile(before)
    by_file = {}
    for code in found:
        path = Path(code.co_filename).resolve()
        if ROOT in path.parents:
            by_file.setdefault(path, set()).add(code)
    return by_file


def lines_of(code) -> set[int]:
    """Numbers of the lines of a function."""
    last = max(line or 0 for _, _, line in code.co_lines())
    return {*range(code.co_firstlineno, last + 1)}


def calls(name: str) -> tuple[Callable, Callable]:
    """Forward, and forward with backward, of a loss on a small batch."""
    g = torch.Generator().manual_seed(0)
    if issubclass(getattr(losses, name), losses.RankingLoss):
        loss = getattr(losses, name)()
        given = [torch.randn(40, 3, generator=g), torch.arange(40) % 4]
    else:
        loss = getattr(losses, name)(num_samples=40)
        given = [torch.randn(40, 8, generator=g) for _ in range(2)]
        given.append(torch.arange(40))
    given[0].requires_grad_()
    return lambda: loss(*given), lambda: loss(*given).backward()


def main() -> None:
    """Print a line per loss."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('-v', action='store_true', help='list the files')
    args = parser.parse_args()
    print('loss            entered  to read  lines  of functions')
    for name in ('StableAPLoss', 'APLoss', 'SmoothAPLoss', 'ISogCLRLoss'):
        forward, step = calls(name)
        own = Path(sys.modules[getattr(losses, name).__module__].__file__)
        run = functions_entered(forward)
        read = {*run, own.resolve()}
        lines = sum(len(p.read_text('utf-8').splitlines()) for p in read)
        parts = sum(len(set().union(*map(lines_of, codes))) for codes in run.values())
        entered = len(functions_entered(step))
        print(f'{name:<15} {entered:>7}  {len(read):>7}  {lines:>5}  {parts:>12}')
        if args.v:
            for path in sorted(read):
                print(f'    {path.relative_to(ROOT)}')


if __name__ == '__main__':
    main()
