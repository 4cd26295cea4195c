"""Imports point downward, the lower floors need torch alone, folders are small.

Read from the source, so that imports inside functions count as well.
"""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'mmrank'
#: A folder or module imports what stands below it, and within itself.
FLOORS = (
    ('interruption',),
    ('errors', 'version'),
    ('retired',),
    ('autograd', 'checks'),
    ('tensors',),
    ('imports', 'mmcv_ops'),
    ('checkpoint_loading', 'distributed', 'files'),
    ('functional.metrics',),
    ('state',),
    ('registry', 'training_set'),
    ('losses', 'calibration'),
    ('functional', 'made_class', 'testing'),
    ('adapters', 'datasets', 'models'),
    ('visualization',),
    ('engine', 'evaluation'),
    ('apis',),
)
FLOOR_OF = {name: i for i, names in enumerate(FLOORS) for name in names}
TORCH = FLOOR_OF['functional']
#: Libraries beside torch and numpy that a module of the torch floors may import.
LIBRARIES = {
    'checkpoint_loading': {'mmengine'},
    # An adapter to the first, which it imports when a loss is built; torch requires the second.
    'losses': {'pytorch_metric_learning'},
    # mmcv's operators by torchvision's kernels.
    'mmcv_ops': {'torchvision'},
    'registry': {'mmengine'},
    # Tests call it, and one check compares with a metric.
    'testing': {'pytest', 'sklearn'},
    'training_set': {'mmengine'},
}
MOST_FILES = 15
FILES = sorted(PACKAGE.rglob('*.py'))


def unit(module: str) -> str:
    """The entry of FLOORS that a module belongs to; '' for mmrank itself."""
    parts = module.split('.')[1:3]
    return '.'.join(parts) if '.'.join(parts) in FLOOR_OF else '.'.join(parts[:1])


def module_of(path: Path) -> str:
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


def imports(path: Path):
    """Full names of what a file imports, and the line."""
    parts = path.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ''
            if node.level:
                base = '.'.join([*parts[: len(parts) - node.level], *filter(None, [base])])
            # A name may be a module of the package itself.
            names = (
                [f'.{x.name}' for x in node.names] if base in {'mmrank', 'mmrank.losses'} else ['']
            )
            yield from ((base + name, node.lineno) for name in names)


def test_every_module_has_a_floor():
    assert {unit(module_of(path)) for path in FILES} == {'', *FLOOR_OF}


@pytest.mark.parametrize('name', FLOOR_OF)
def test_imports_point_downward(name):
    wrong = []
    for path in (path for path in FILES if unit(module_of(path)) == name):
        for module, line in imports(path):
            other = unit(module) if module.partition('.')[0] == 'mmrank' else name
            if module.partition('.')[0] in ('theory', 'in_batch') or (
                other != name and FLOOR_OF.get(other, -1) >= FLOOR_OF[name]
            ):
                wrong.append(f'{path.relative_to(ROOT)}:{line}: {module}')
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('name', [name for name in FLOOR_OF if FLOOR_OF[name] <= TORCH])
def test_lower_floors_need_torch_alone(name):
    allowed = {'torch', 'numpy', 'mmrank', *LIBRARIES.get(name, ()), *sys.stdlib_module_names}
    wrong = [
        f'{path.relative_to(ROOT)}:{line}: {module}'
        for path in FILES
        if unit(module_of(path)) == name
        for module, line in imports(path)
        if module.partition('.')[0] not in allowed
    ]
    assert not wrong, '\n'.join(wrong)


def test_no_folder_is_crowded():
    folders = {path.parent for path in FILES}
    crowded = {str(x.relative_to(ROOT)): len([*x.glob('*.py')]) for x in folders}
    assert not {name: count for name, count in crowded.items() if count > MOST_FILES}


def test_no_folder_has_a_circle_of_imports():
    """Each module can be read after those of its folder that it imports."""
    circles = []
    for folder in sorted({path.parent for path in FILES}):
        modules = [path for path in folder.glob('*.py') if path.name != '__init__.py']
        names = {module_of(path) for path in modules}
        graph = {module_of(path): {x for x, _ in imports(path)} & names for path in modules}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles.append(' -> '.join(error.args[1]))
    assert not circles, '\n'.join(circles)


@pytest.mark.parametrize('package', ['apis', 'datasets', 'functional', 'losses'])
def test_names_of_stubs_are_there(package):
    """The stub names the modules: what type checkers read is what is imported."""
    module = import_module(f'mmrank.{package}')
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name).__name__ == name


IMPORT = """
import sys
from torch import nn
from torch.nn.modules import module
before = list(sys.meta_path), nn.Module.__new__, dict(module._global_module_registration_hooks)
import mmrank, mmrank.losses, mmrank.functional, mmrank.state
mmrank.StableAPLoss()
assert (sys.meta_path, nn.Module.__new__) == before[:2]
import mmrank.registry, mmrank.losses.registered
assert dict(module._global_module_registration_hooks) == before[2]
"""


@pytest.mark.processes
def test_an_import_changes_nothing():
    done = subprocess.run([sys.executable, '-c', IMPORT], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
