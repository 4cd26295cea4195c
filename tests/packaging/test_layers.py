"""Layers of imports, packages that are absent, and names that are gone."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'mmrank'
#: Modules at the root that all rooms may import; each imports what stands above it.
GROUND = (
    *('interruption', 'errors', 'version', 'autograd', 'settings', 'tensors', 'imports'),
    *('mmcv_ops', 'checkpoint_loading', 'distributed', 'files', 'registry', 'training_set'),
)
#: The rooms, lowest first, with what each imports of the others.
ROOMS = {
    'metrics': '',
    'state': '',
    'losses': 'state',
    'calibration': '',
    'functional': '',  # a list of names
    'testing': '',
    'made_class': 'losses',
    'annotations': '',
    'datasets': 'annotations',
    'adapters': 'losses made_class',
    'models': 'calibration losses made_class metrics state',
    'engine': 'annotations datasets losses state',
    'evaluation': 'annotations datasets functional metrics models',
    'runners': 'annotations datasets engine models',
    'own_data': 'annotations models',
    'pictures': 'annotations datasets evaluation functional',
    'experiments': 'pictures runners',
    'cli': 'annotations datasets engine evaluation experiments models own_data pictures runners',
    '__main__': 'cli',
}
#: What needs torch alone.
TORCH = (*GROUND, *[*ROOMS][: [*ROOMS].index('annotations')])
#: Libraries beside torch and numpy that a module of these may import.
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
#: Folders of tools/research with code, which mmrank knows nothing of: the height of each.
RESEARCH = {'plans': 0, 'images': 1, 'detectors': 1, 'pairs': 1, 'long_tail': 1, 'theory': 1}
RESEARCH |= {'pages': 1, 'studies': 2, 'papers': 2}
MOST_FILES = 15
FILES = sorted(PACKAGE.rglob('*.py'))


def unit(module: str) -> str:
    """The room, or module of the ground, that a module belongs to; '' for mmrank itself."""
    return '.'.join(module.split('.')[1:2])


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


def imported_units(name: str) -> set[str]:
    """What the files of a room import of mmrank."""
    modules = (x for p in FILES if unit(module_of(p)) == name for x, _ in imports(p))
    return {unit(x) for x in modules if x.partition('.')[0] == 'mmrank'} - {name, ''}


def test_every_module_has_a_room():
    assert {unit(module_of(path)) for path in FILES} == {'', *GROUND, *ROOMS}


@pytest.mark.parametrize('name', GROUND)
def test_the_ground_imports_what_stands_above(name):
    assert imported_units(name) <= {*GROUND[: GROUND.index(name)]}


@pytest.mark.parametrize('name', ROOMS)
def test_a_room_imports_what_the_table_says(name):
    assert imported_units(name) - {*GROUND} == {*ROOMS[name].split()}
    order = [*ROOMS]
    assert all(order.index(other) < order.index(name) for other in ROOMS[name].split())


@pytest.mark.parametrize('name', TORCH)
def test_the_lower_rooms_need_torch_alone(name):
    allowed = {'torch', 'numpy', 'mmrank', *LIBRARIES.get(name, ()), *sys.stdlib_module_names}
    wrong = [
        f'{path.relative_to(ROOT)}:{line}: {module}'
        for path in FILES
        if unit(module_of(path)) == name
        for module, line in imports(path)
        if module.partition('.')[0] not in allowed
    ]
    assert not wrong, '\n'.join(wrong)


@pytest.mark.parametrize('root', ['mmrank', 'tools', 'tests/cases', 'tests/helpers'])
def test_no_folder_is_crowded(root):
    files = [x for x in (ROOT / root).rglob('*') if x.suffix in ('.py', '.yaml')]
    counts = Counter(str(x.parent.relative_to(ROOT)) for x in files)
    assert not {name: count for name, count in counts.items() if count > MOST_FILES}


def test_folders_of_research_import_downward():
    """Commands stand above all folders, studies and papers above the others, plans below."""
    folder = ROOT / 'tools/research'
    wrong = [str(x) for x in FILES for module, _ in imports(x) if module.split('.')[0] in RESEARCH]
    for path in folder.rglob('*.py'):
        name = path.relative_to(folder).parts[0]
        for module, line in imports(path) if name in RESEARCH else ():
            other = module.partition('.')[0]
            if other != name and RESEARCH.get(other, -1) >= RESEARCH[name]:
                wrong.append(f'{path.relative_to(ROOT)}:{line}: {module}')
    assert not wrong, '\n'.join(wrong)


def test_no_folder_has_a_circle_of_imports():
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


@pytest.mark.parametrize('package', ['datasets', 'functional', 'losses', 'runners'])
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


BLOCKER = """
import sys

class Blocker:
    names = set({names!r})

    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in self.names:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)

sys.meta_path.insert(0, Blocker())
sys.path[:0] = [{root!r}, {root!r} + '/tools']
"""


def run_without(names, code):
    blocker = BLOCKER.format(names=sorted(names), root=str(ROOT))
    return subprocess.run([sys.executable, '-c', blocker + code], capture_output=True, text=True)


OPENMMLAB = {'mmengine', 'mmcv', 'mmdet', 'mmpretrain'}
OTHERS = {
    *('matplotlib', 'pycocotools', 'rich', 'safetensors', 'scipy', 'sentence_transformers'),
    *('tabulate', 'torchvision', 'transformers'),
}


WITHOUT_MMDET = """
import torch
from mmengine.registry import METRICS, MODELS
from mmrank.registry import DATASETS, HOOKS, OPTIMIZERS

assert MODELS.build(dict(type='mmrank.StableAPLoss'))
assert OPTIMIZERS.get('mmrank.SUM')
assert HOOKS.get('mmrank.RankingMonitorHook')
assert HOOKS.get('mmrank.ClassCountsHook')
metric = METRICS.build(dict(type='mmrank.RetrievalMetric'))
assert metric.recall_at == (1, 10, 100, 1000)

import mmrank.datasets.checks.coco_check
import mmrank.datasets.shapes_coco
import mmrank.pictures.detections
import mmrank.pictures.pr_curves
from mmrank.datasets.registered import RETRIEVAL_DATASETS


def refused(registry, package, **config):
    try:
        registry.build(config)
    except ImportError as error:
        assert f'requires {package}, which is not installed' in str(error)
        assert f'mim install {package}' in str(error), error
    else:
        raise AssertionError(f'built {config} without {package}')


assert len(RETRIEVAL_DATASETS) == 5
for name in RETRIEVAL_DATASETS:
    refused(DATASETS, 'mmpretrain', type=f'mmrank.{name}', data_root='')
refused(DATASETS, 'mmdet', type='mmrank.CheckedCocoDataset', ann_file='a')

from mmengine.structures import BaseDataElement

net = MODELS.build(
    dict(
        type='mmrank.DeepFeatureMixup',
        backbone=dict(type='mmrank.SmallConvNet', channels=8),
        stages=('blocks',),
    )
)
head = MODELS.build(
    dict(
        type='mmrank.RetrievalHead',
        num_classes=2,
        loss=dict(type='mmrank.StableAPLoss', mode='per_class'),
        memory=dict(size=8, dim=8),
    )
)
samples = [
    BaseDataElement(metainfo=dict(sample_idx=i), gt_label=torch.tensor(i % 2))
    for i in range(4)
]
with net.mixing(torch.arange(4) % 2):
    maps = net(torch.randn(4, 1, 28, 28))[-1]
head.loss(maps.flatten(1), samples, 2)['loss'].backward()
refused(MODELS, 'mmpretrain', type='mmrank.EmbeddingRetriever', image_encoder={})
refused(MODELS, 'mmpretrain', type='mmrank.TwoViewLearner', backbone={}, loss={})
"""


def test_without_mmdet_and_mmpretrain():
    """One process: it takes most of the time to import torch."""
    absent = {'mmdet', 'mmpretrain', 'mmcv'}
    done = run_without(absent, WITHOUT_MMDET)
    assert done.returncode == 0, done.stderr


#: What is refused where no other library is: a call, and words of its message.
WITHOUT_ALL = """
import importlib, torch, mmrank.functional as F
x = torch.tensor([[1., 2.]], requires_grad=True)
y = torch.tensor([[0., 3., 1.]])
F.pairwise_surrogate_sum(x, y, F.OneSidedHuber(1.0)).sum().backward()
assert torch.isfinite(x.grad).all()
assert not {'numpy', 'mmengine'} & set(vars(sys.modules['mmrank']))
from mmrank.adapters import use_ranking_loss
from mmrank.losses import AUCLoss, ISogCLRLoss, StableAPLoss, SumLoss
from mmrank.registry import MODELS
scores = torch.randn(20, 3, requires_grad=True)
for loss in (StableAPLoss(rho=1.0), SumLoss([StableAPLoss(rho=1.0), AUCLoss(tau=1.0)])):
    loss(scores, torch.arange(20) % 4).backward()
    assert torch.isfinite(scores.grad).all()
view = torch.randn(8, 4)
assert ISogCLRLoss(8)(view, view, torch.arange(8)).isfinite()
adapter = lambda name: lambda: importlib.import_module('mmrank.adapters.' + name)
for call, words in [
    (lambda: SumLoss([dict(type='mmrank.AUCLoss')]), 'mim install mmengine'),
    (lambda: MODELS.build(dict(type='StableAPLoss')), 'mim install mmengine'),
    (lambda: use_ranking_loss(torch.nn.Linear(2, 2), StableAPLoss()), 'Linear has no adapter'),
    (adapter('sentence_losses'), 'requires transformers, which is not'),
    (adapter('detection_transformers'), 'requires transformers, which is not'),
    (adapter('torchvision_detectors'), 'requires torchvision, which is not'),
    (adapter('torchvision_rcnn'), 'requires torchvision, which is not'),
]:
    try:
        call()
    except (ImportError, TypeError) as error:
        assert words in str(error), error
        assert 'Fix: ' in str(error) or 'install' in str(error), error
    else:
        raise AssertionError(words)
assert 'mmengine' not in sys.modules
"""


def test_functions_and_losses_need_torch_alone_and_adapters_say_which_library_is_absent():
    """One process, as above."""
    absent = OPENMMLAB | OTHERS | {'pytorch_metric_learning'}
    done = run_without(absent, WITHOUT_ALL)
    assert done.returncode == 0, done.stderr
