"""Who finds ``mmcv._ext``: this process, others, a script that does not know mmrank."""

import importlib.util
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from mmrank import mmcv_ops

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
#: An mmcv without operators: what `load_ext` does, and the file that a build adds.
MMCV = """\
import importlib
ext_module = importlib.import_module('mmcv._ext')
assert all(hasattr(ext_module, name) for name in ('nms', 'knn_forward'))
"""


@pytest.fixture
def mmcv(tmp_path):
    """A package mmcv without compiled operators; a function that runs code beside it."""
    folder = tmp_path / 'mmcv'
    (folder / 'ops').mkdir(parents=True)
    (folder / '__init__.py').write_text('')
    (folder / 'ops' / '__init__.py').write_text(MMCV)

    def run(*argv):
        env = {'PYTHONPATH': f'{tmp_path}:{ROOT}', 'PATH': ''}
        return subprocess.run(
            [sys.executable, *argv], env=env, capture_output=True, text=True, cwd=tmp_path
        )

    run.folder = folder
    return run


def test_import_of_mmcv_ops_makes_the_operators_available(mmcv):
    done = mmcv('-c', 'import mmcv.ops')
    assert "No module named 'mmcv._ext'" in done.stderr
    code = """
import sys, mmrank.mmcv_ops
assert 'torch' not in sys.modules
import mmcv.ops
found = mmcv.ops.ext_module
assert found.__spec__.name == 'mmcv._ext', found.__spec__
assert found.__file__.endswith('mmrank/mmcv_ops/extension.py')
import torch
boxes = torch.tensor([[0.0, 0, 9, 9], [1, 1, 9, 9], [20, 20, 29, 29]])
assert found.nms(boxes, boxes[:, 2], iou_threshold=0.5, offset=0).tolist() == [2, 0]
"""
    done = mmcv('-c', code)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_command_makes_them_available_without_an_import_and_takes_them_away(mmcv):
    done = mmcv('-m', 'mmrank.mmcv_ops')
    assert done.returncode == 0, done.stderr
    code = 'import mmcv.ops; mmcv.ops.ext_module.get_compiler_version()'
    done = mmcv('-c', code)
    assert done.returncode == 0, done.stderr
    assert mmcv('-c', f'import mmrank.registry; {code}').returncode == 0
    assert mmcv('-m', 'mmrank.mmcv_ops', '--remove').returncode == 0
    assert mmcv('-c', code).returncode == 1


def test_command_without_mmcv_says_what_to_install(mmcv):
    mmcv.folder.rename(mmcv.folder.with_name('other'))
    done = mmcv('-S', '-m', 'mmrank.mmcv_ops')  # without the packages of this environment
    assert done.returncode == 1
    assert 'Fix: pip install mmcv-lite' in done.stderr


def test_compiled_module_that_does_not_load_is_replaced_and_named(mmcv):
    broken = mmcv.folder / f'_ext{EXTENSION_SUFFIXES[0]}'
    broken.write_text('built for another torch')
    done = mmcv('-c', 'import mmrank.mmcv_ops, mmcv.ops; print(mmcv.ops.ext_module.__file__)')
    assert done.returncode == 0, done.stderr
    assert 'extension.py' in done.stdout
    assert 'compiled operators of mmcv do not load' in done.stderr
    assert str(broken) in done.stderr
    assert 'Fix:' in done.stderr


def test_compiled_module_that_loads_is_preferred(tmp_path, monkeypatch):
    found = importlib.util.find_spec('_ctypes')
    if found is None or not found.origin:
        pytest.skip('this Python has no compiled module to try with')
    target = tmp_path / f'_ext{EXTENSION_SUFFIXES[0]}'
    target.write_bytes(Path(found.origin).read_bytes())
    spec = mmcv_ops._Finder().find_spec(mmcv_ops.NAME, [str(tmp_path)])
    assert spec.origin == str(target)
    assert mmcv_ops._Finder().find_spec('mmcv.ops', [str(tmp_path)]) is None


def test_missing_operator_refuses_when_called():
    from mmrank.mmcv_ops import extension

    operator = extension.furthest_point_sampling_forward
    with pytest.raises(NotImplementedError, match='furthest_point_sampling_forward') as error:
        operator(1, x=2)
    for way_out in ('--compile-mmcv', 'pip install', 'a config without'):
        assert way_out in str(error.value)
    assert not hasattr(extension, '__nothing__')


def test_absent_torchvision_is_named(mmcv):
    code = """
import sys, mmrank.mmcv_ops
sys.modules['torchvision'] = None
import mmcv.ops
"""
    done = mmcv('-c', code)
    assert done.returncode == 1
    assert 'install the torchvision of this torch' in done.stderr
