"""Build and try a release, and print the commands that are left to a person.

    python tools/misc/release.py --url https://github.com/OWNER/mmrank

It builds the last commit, not the working tree, into ``dist``: a wheel, its sources, and NOTES.md
of the version from CHANGELOG.md. The wheel and the sources are each installed in an empty
environment of each Python that is here, and the example of their description runs there. Nothing is
uploaded. Without ``--url`` the metadata has no links.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name('uv')
PYTHONS = ('3.10', '3.11', '3.12', '3.13')
TRIAL = """import importlib.metadata, pathlib, re, mmrank
assert (pathlib.Path(mmrank.__file__).parent / '.mim/configs').is_dir(), 'no .mim'
text = importlib.metadata.metadata('mmrank').get_payload()
exec(re.search('```python\\n(.*?)```', text, re.DOTALL)[1])
"""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return what it prints; its errors are shown, and end this."""
    words = [*map(str, command)]
    return subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def notes_of(version: str, changelog: str) -> str:
    """Return the section of a version; it must be dated, as a release is."""
    found = re.search(
        rf'^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)',
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if found is None:
        sys.exit(f'CHANGELOG.md has no section of {version}.\n  Fix: ## {version} (YYYY-MM-DD)')
    return found[2].strip() + '\n'


def add_links(sources: Path, url: str) -> None:
    """Name the address in the metadata of the wheel and in the citation."""
    changelog = f'{url}/blob/main/CHANGELOG.md'
    with open(sources / 'pyproject.toml', 'a', encoding='utf-8') as file:
        file.write(f'\n[project.urls]\nSource = "{url}"\nIssues = "{url}/issues"\n')
        file.write(f'Changelog = "{changelog}"\n')
    with open(sources / 'CITATION.cff', 'a', encoding='utf-8') as file:
        file.write(f'repository-code: {url}\n')


def has(python: str) -> bool:
    """Whether uv finds this Python; it downloads none."""
    found = subprocess.run(
        [UV, 'python', 'find', '--no-python-downloads', python], cwd=ROOT, capture_output=True
    )
    return found.returncode == 0


def try_in_empty_environment(package: Path, python: str, folder: Path) -> None:
    """Install a package with what it requires, and run the example of its description."""
    run(UV, 'venv', '-q', '--clear', '--no-python-downloads', '--python', python, folder / 'venv')
    inside = folder / 'venv' / 'bin'
    run(UV, 'pip', 'install', '-q', '--python', inside / 'python', package)
    run(inside / 'python', '-c', TRIAL, cwd=folder)
    print(f'{run(inside / "mmrank", "--version", cwd=folder).strip()} works: ', end='')
    print(f'{package.name}, Python {python}', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--url', default='', help='address of the repository, for the metadata')
    parser.add_argument(
        '--python', nargs='+', default=PYTHONS, help='versions or paths to try, if here'
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = folder / 'mmrank'
        run('git', 'clone', '-q', ROOT, sources)
        text = (sources / 'mmrank' / 'version.py').read_text('utf-8')
        version = re.search(r"^__version__ = '(.*)'$", text, re.MULTILINE)[1]
        notes = notes_of(version, (sources / 'CHANGELOG.md').read_text('utf-8'))
        if args.url:
            add_links(sources, args.url.rstrip('/'))
        dist = ROOT / 'dist'
        build = ('build', '-q', '--clear', '--no-build-isolation', '--python', sys.executable)
        run(UV, *build, '--out-dir', dist, cwd=sources)
        here = [x for x in args.python if has(x)]
        if not here:
            sys.exit(f'No Python of {", ".join(args.python)} is here.\n  Fix: --python PATH')
        for python in here:
            for package in sorted(dist.glob(f'mmrank-{version}*')):
                try_in_empty_environment(package, python, folder)
    (dist / 'NOTES.md').write_text(notes, encoding='utf-8')
    print(
        f'\nLeft to you:\n'
        f'  git tag -a v{version} -F dist/NOTES.md && git push origin v{version}\n'
        f'  uv publish dist/mmrank-{version}*\n'
        f'  gh release create v{version} --notes-file dist/NOTES.md dist/mmrank-{version}*'
    )


if __name__ == '__main__':
    main()
