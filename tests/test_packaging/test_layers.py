"""Imports point downward, the lower floors need torch alone, rooms are small.

Read from the source, so that imports inside functions count as well.
"""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'mmrank'
FLOORS = (
    ('functional', 'losses', 'state'),
    ('adapters', 'datasets', 'models'),
    ('engine', 'evaluation', 'visualization'),
    ('apis',),
)
FLOOR_OF = {name: i for i, names in enumerate(FLOORS) for name in names}
#: Between neighbours on one floor: which may import which.
NEIGHBOURS = {
    ('engine', 'visualization'),
    ('evaluation', 'visualization'),
    ('functional', 'losses'),
    ('losses', 'functional'),
    ('losses', 'state'),
    ('state', 'functional'),
    ('state', 'losses'),
}
#: Beside the floors, with the packages that they may import.
COMMON = {
    'autograd': {'torch'},
    'checkpoint_loading': {'torch', 'numpy', 'mmengine'},
    'docstrings': set(),
    'errors': set(),
    'files': set(),
    'interruption': set(),
    'made_class': set(),
    'optional_class': {'mmengine'},
    'registry': {'mmengine'},
    'required_package': set(),
    'training_set': {'mmengine'},
    'version': set(),
}
#: What these floors may import beside torch.
THIRD_PARTY = {
    'functional': set(),
    'state': set(),
    # An adapter to this library, which it imports when a loss is built.
    'losses': {'pytorch_metric_learning'},
    # Each file serves one library.
    'adapters': {'safetensors', 'torchvision', 'transformers'},
}
MOST_FILES = 15


def modules(folder):
    return sorted(folder.rglob('*.py'))


def imports(path):
    """Full names of what a file imports, and the line."""
    parts = path.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                above = '.'.join(parts[: len(parts) - node.level])
                base = f'{above}.{base}'.rstrip('.')
            # A name may be a module of the package itself.
            if base == 'mmrank':
                yield from ((f'mmrank.{a.name}', node.lineno) for a in node.names)
            else:
                yield base, node.lineno


def own_imports(path):
    """Parts of mmrank that a file imports, and the line."""
    for name, line in imports(path):
        head, _, rest = name.partition('.')
        if head == 'mmrank' and rest:
            yield rest.partition('.')[0], line


def test_every_folder_has_a_floor():
    found = {p.parent.name for p in PACKAGE.glob('*/__init__.py')}
    files = {p.stem for p in PACKAGE.glob('*.py')} - {'__init__'}
    assert found | files == {'configs', *FLOOR_OF, *COMMON}


@pytest.mark.parametrize('name', FLOOR_OF)
def test_imports_point_downward(name):
    wrong = []
    for path in modules(PACKAGE / name):
        for other, line in own_imports(path):
            if other == name or (other in COMMON and other != 'registry'):
                continue
            if other == 'registry':
                fine = FLOOR_OF[name] >= FLOOR_OF['losses']
            elif FLOOR_OF[other] == FLOOR_OF[name]:
                fine = (name, other) in NEIGHBOURS
            else:
                fine = FLOOR_OF[other] < FLOOR_OF[name]
            if not fine:
                wrong.append(f'{path.relative_to(ROOT)}:{line}: {other}')
    assert not wrong, '\n'.join(wrong)


def test_nothing_in_the_package_imports_research():
    wrong = [
        f'{path.relative_to(ROOT)}:{line}'
        for path in modules(PACKAGE)
        for name, line in imports(path)
        if name.partition('.')[0] == 'research'
    ]
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('name', THIRD_PARTY)
def test_floors_need_torch_and_few_others(name):
    allowed = {'torch', 'numpy', 'mmrank', *THIRD_PARTY[name]}
    wrong = []
    for path in modules(PACKAGE / name):
        for module, line in imports(path):
            head = module.partition('.')[0]
            if head not in allowed and head not in sys.stdlib_module_names:
                wrong.append(f'{path.relative_to(ROOT)}:{line}: {module}')
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('name', COMMON)
def test_common_modules_need_few_packages(name):
    folder = PACKAGE / name
    paths = modules(folder) if folder.is_dir() else [PACKAGE / f'{name}.py']
    heads = {module.partition('.')[0] for path in paths for module, _ in imports(path)}
    assert heads - set(sys.stdlib_module_names) <= COMMON[name] | {'mmrank'}


def test_no_folder_is_crowded():
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder in {p.parent for p in modules(PACKAGE)}
        if (count := len(list(folder.glob('*.py')))) > MOST_FILES
    }
    assert not crowded
