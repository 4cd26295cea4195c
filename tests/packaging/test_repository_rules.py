"""What no tracked file may hold, and what the lock file must be."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / 'requirements' / 'lock.txt'
#: They remove what they made.
RESEARCH_TESTS = 'tools/research/tests'
# Put together here so that this file does not find itself.
FORBIDDEN = [
    re.compile(pattern)
    for pattern in (
        '/' + r'(root|home|Users)/(\.\w|[a-z]+/[a-z])',
        r'(extra-)?index' + r'-url\s*[= ]\s*\S*://',
        r'files\.python' + 'hosted',
    )
]


def tracked_files():
    done = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        pytest.skip('needs a git checkout')
    names = filter(None, done.stdout.decode().split('\0'))
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_no_machine_paths_or_hosts():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text('utf-8')
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if any(pattern.search(line) for pattern in FORBIDDEN):
                found.append(f'{path.relative_to(ROOT)}:{number}: {line}')
    assert not found, '\n'.join(found)


def test_no_weights_or_large_files():
    for path in tracked_files():
        assert path.suffix not in {'.pth', '.pt', '.whl', '.npy', '.zip'}
        assert path.stat().st_size < 1_000_000, path


def lock_lines():
    """The requirements without their hashes."""
    lines = LOCK.read_text('utf-8').replace('\\\n', ' ').splitlines()
    return [x.split(' --hash')[0].strip() for x in lines]


@pytest.mark.parametrize('python', ['3.10', '3.11', '3.12'])
def test_lock_pins_each_package_once_per_python(python):
    from packaging.requirements import Requirement

    environment = {
        'python_version': python,
        'platform_system': 'Linux',
        'platform_machine': 'x86_64',
    }
    names = [
        requirement.name
        for requirement in map(Requirement, lock_lines())
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]
    assert len(names) == len(set(names))
    assert {'torch', 'onedl-mmcv', 'pytest', 'scipy', 'triton'} <= set(names)


#: Functions that remove files, and whose they are.
REMOVERS = {
    'mmrank/files.py': 'replace_atomically temporary_folder remove_temporary_files remove_path',
    # The pointer; checkpoints with a successor.
    'mmrank/engine/hooks/atomic_checkpoint_hook.py': '_point_to_whole _remove_outdated',
    'mmrank/datasets/transforms.py': 'write',  # of a cache that was one
    'mmrank/mmcv_ops/__main__.py': 'main',  # the module that it wrote itself
    'tools/bootstrap.py': 'make',  # its stamp
    'mmrank/cli/demo.py': 'prepare_data',  # behind a stamp of its own
    'tools/research/studies/libraries.py': '_train',  # the training before
}


def test_no_other_function_removes_files():
    """A tool with an output option removes what it wrote before, at most; review what is added."""
    found = {}
    calls = {'unlink', 'rmtree', 'rmdir', 'removedirs', 'remove_path'}
    for folder in ('mmrank', 'tools'):
        for path in sorted((ROOT / folder).rglob('*.py')):
            if RESEARCH_TESTS in str(path):
                continue
            functions = ast.walk(ast.parse(path.read_text('utf-8')))
            for node in (x for x in functions if isinstance(x, ast.FunctionDef)):
                for call in ast.walk(node):
                    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ''
                    if name.split('.')[-1] in calls or name == 'os.remove':
                        found.setdefault(str(path.relative_to(ROOT)), set()).add(node.name)
    assert found == {path: {*names.split()} for path, names in REMOVERS.items()}


def test_supply_chain_is_pinned():
    for path in (ROOT / '.github' / 'workflows').glob('*.yml'):
        text = path.read_text('utf-8')
        assert re.findall(r'permissions: *(.*)', text) == ['{contents: read}'], path
        for action in re.findall(r'uses: (\S+)', text):
            assert re.fullmatch(r'[\w/-]+@[0-9a-f]{40}', action), f'{path}: {action}'
        for command in re.findall(r'(pip install.*|pipx .*)', text):
            assert '--require-hashes' in command, f'{path}: {command}'
    text = (ROOT / 'tools' / 'docker' / 'Dockerfile').read_text('utf-8')
    assert re.search(r'^ARG BASE=python:\S+@sha256:[0-9a-f]{64}\nFROM \${BASE}$', text, re.M)
    assert re.findall(r'^USER (\w+)$', text, re.M) == ['mmrank']
