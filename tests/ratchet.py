"""Measure how large the project is, and compare it with the committed limits.

A change lowers the limits in ``tests/ratchet.yaml``. A commit that raises one says what its lines
buy::

    PYTHONPATH=. python tests/ratchet.py           # figures and limits
    PYTHONPATH=. python tests/ratchet.py --lower   # write the figures that are lower
    PYTHONPATH=. python tests/ratchet.py --files   # files entered by a step of some losses
"""

import argparse
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import yaml

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_suffix('.yaml')
RESEARCH_TESTS = 'tools/research/tests'
STEPS = ('StableAPLoss', 'SmoothAPLoss', 'APLoss', 'ISogCLRLoss')


def tracked(*folders: str) -> list[Path]:
    """Files of folders that git tracks or would add."""
    command = ['git', 'ls-files', '-z', '-co', '--exclude-standard', '--', *folders]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in found.split('\0') if name and (ROOT / name).is_file()]


def lines(paths) -> int:
    """Lines of Python files, blank ones and comments included."""
    return sum(len(p.read_text('utf-8').splitlines()) for p in paths if p.suffix == '.py')


def files_of(folder: str) -> list[Path]:
    """Tracked files of a folder; the tests of research count as tests."""
    if folder == 'tests':
        return tracked(folder, RESEARCH_TESTS)
    return [path for path in tracked(folder) if ROOT / RESEARCH_TESTS not in path.parents]


def sizes() -> dict[str, int]:
    """Lines and files of each folder."""
    found = {}
    for folder in ('mmrank', 'tools', 'tests', 'configs'):
        paths = files_of(folder)
        python = [path for path in paths if path.suffix == '.py']
        found[f'files of {folder}'] = len(paths if folder == 'configs' else python)
        found[f'lines of {folder}'] = lines(python)
    for folder in ('mmrank', 'tools'):
        for path in sorted((ROOT / folder).iterdir()):
            count = lines(files_of(str(path))) if path.is_dir() else 0
            if count:
                found[f'lines of {folder}/{path.name}'] = count
    found[f'lines of {RESEARCH_TESTS}'] = lines(tracked(RESEARCH_TESTS))
    return found


def files_entered(call: Callable[[], object]) -> list[Path]:
    """Files of mmrank whose functions a call runs."""
    found = set()

    def note(frame, event, _):
        if event == 'call':
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        # Not on a thread of autograd, which is not watched.
        with torch.autograd.set_multithreading_enabled(False):
            call()
    finally:
        sys.setprofile(before)
    paths = {Path(name).resolve() for name in found}
    return sorted(path for path in paths if ROOT / 'mmrank' in path.parents)


def step(name: str) -> Callable[[], object]:
    """A forward and backward pass of a loss, called as a config would."""
    from mmrank import losses

    g = torch.Generator().manual_seed(0)
    if name == 'ISogCLRLoss':
        loss = losses.ISogCLRLoss(num_samples=40)
        given = [torch.randn(40, 8, generator=g) for _ in range(2)]
        given.append(torch.arange(40))
    else:
        loss = getattr(losses, name)()
        # As many scores as a detector has: other ways than those of a small batch are taken.
        labels = (torch.arange(4000) % 500).clamp(max=80)
        given = [torch.randn(4000, 80, generator=g), labels]
    given[0].requires_grad_()
    return lambda: loss(*given).backward()


def reading() -> dict[str, int]:
    """Files, and their lines, that one step of a loss enters."""
    found = {}
    for name in STEPS:
        paths = files_entered(step(name))
        found[f'files entered by {name}'] = len(paths)
        found[f'lines entered by {name}'] = lines(paths)
    return found


def options() -> dict[str, int]:
    """Options of all registered classes, each counted once, where its class or base defines it."""
    takers = options_by_owner()
    most = Counter(name for names in takers.values() for name in names)
    return {
        'options of registered classes': len(takers),
        'options that nothing sets': len(unset_options(takers)),
        'most options of one class': max(most.values()),
    }


def options_by_owner() -> dict[tuple[str, str], set[str]]:
    """Names of the registered classes that take an option, by its class and its name."""
    from mmrank import registry

    takers: dict[tuple[str, str], set[str]] = {}
    for node in map(registry.__dict__.get, registry.__all__):
        node.import_from_location()
        for name, entry in node.module_dict.items():
            # A test of the same process may have registered a class of its own.
            if not inspect.isclass(entry) or not entry.__module__.startswith('mmrank.'):
                continue
            owners: dict[str, str] = {}
            for cls in entry.__mro__:
                if cls.__module__.startswith('mmrank.') and '__init__' in cls.__dict__:
                    for option in inspect.signature(cls.__init__).parameters:
                        owners.setdefault(option, cls.__name__)
            for option, owner in owners.items():
                if option not in ('self', 'args', 'kwargs'):
                    takers.setdefault((owner, option), set()).add(name)
    return takers


def unset_options(takers: dict[tuple[str, str], set[str]]) -> list[tuple[str, str]]:
    """Options that no config, page, tool or plan sets in a file that names such a class."""
    kinds = {'.py', '.md', '.yaml'}
    folders = [ROOT / name for name in ('configs', 'docs', 'tools', 'mmrank/apis')]
    paths = [path for folder in folders for path in folder.rglob('*') if path.suffix in kinds]
    texts = [path.read_text('utf-8') for path in [*paths, ROOT / 'README.md']]
    words = [{*re.findall(r'\w+', text)} for text in texts]
    settings = [{*re.findall(r'(\w+)[\'"]?\s*[=:](?!=)', text)} for text in texts]
    found = set()
    for both, names in takers.items():
        files = zip(words, settings)
        if any(both[1] in set_here and not names.isdisjoint(named) for named, set_here in files):
            found.add(both)
    return sorted(takers.keys() - found)


def configs() -> dict[str, int]:
    """Leaf configs that are neither measured nor a paper's printed setting nor a tutorial."""
    sys.path[:0] = [str(ROOT / 'tests' / 'helpers')]
    try:
        from published_configs import leaves_without_result
    finally:
        del sys.path[:1]
    return {'leaf configs without a result': len(leaves_without_result())}


def figures() -> dict[str, int]:
    """All figures by name."""
    return {**sizes(), **reading(), **options(), **configs()}


def main() -> None:
    """Print the figures with their limits, or write lower limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--lower', action='store_true', help='write the figures that are lower')
    parser.add_argument('--files', action='store_true', help='list the files entered')
    args = parser.parse_args()
    if args.files:
        for name in STEPS:
            print(name)
            for path in files_entered(step(name)):
                print(f'  {lines([path]):>5}  {path.relative_to(ROOT)}')
        return
    limits = yaml.safe_load(LIMITS.read_text('utf-8')) if LIMITS.is_file() else {}
    found = figures()
    for name, value in found.items():
        print(f'{name:<40} {value:>7} {limits.get(name, ""):>7}')
    if args.lower:
        # Room for a mended line: only growth of tens of lines has to be explained.
        rooms = {name: 25 if name.startswith('lines') else 1 for name in found}
        rounded = {name: -(-value // rooms[name]) * rooms[name] for name, value in found.items()}
        lower = {name: min(value, limits.get(name, value)) for name, value in rounded.items()}
        text = '# Limits of tests/ratchet.py. A commit that raises one says what its lines buy.\n'
        LIMITS.write_text(text + yaml.safe_dump(lower, sort_keys=False), 'utf-8')


if __name__ == '__main__':
    main()
