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
    """A package mmcv without compiled operators; a function that gives what code beside it says."""
    folder = tmp_path / 'mmcv'
    (folder / 'ops').mkdir(parents=True)
    (folder / '__init__.py').write_text('')
    (folder / 'ops' / '__init__.py').write_text(MMCV)

    def run(*argv, status=0):
        env = {'PYTHONPATH': f'{tmp_path}:{ROOT}', 'PATH': ''}
        done = subprocess.run(
            [sys.executable, *argv], env=env, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    run.folder = folder
    return run


def test_import_of_mmcv_ops_makes_the_operators_available(mmcv):
    assert "No module named 'mmcv._ext'" in mmcv('-c', 'import mmcv.ops', status=1)
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
    assert not mmcv('-c', code)


def test_command_makes_them_available_without_an_import_and_takes_them_away(mmcv):
    mmcv('-m', 'mmrank.mmcv_ops')
    code = 'import mmcv.ops; mmcv.ops.ext_module.get_compiler_version()'
    mmcv('-c', code)
    mmcv('-c', f'import mmrank.registry; {code}')
    mmcv('-m', 'mmrank.mmcv_ops', '--remove')
    mmcv('-c', code, status=1)


def test_command_without_mmcv_says_what_to_install(mmcv):
    mmcv.folder.rename(mmcv.folder.with_name('other'))
    # Without the packages of this environment.
    said = mmcv('-S', '-m', 'mmrank.mmcv_ops', status=1)
    assert 'Fix: pip install mmcv-lite' in said


def test_compiled_module_that_does_not_load_is_replaced_and_named(mmcv):
    broken = mmcv.folder / f'_ext{EXTENSION_SUFFIXES[0]}'
    broken.write_text('built for another torch')
    said = mmcv('-c', 'import mmrank.mmcv_ops, mmcv.ops; print(mmcv.ops.ext_module.__file__)')
    for words in ('extension.py', 'operators of mmcv do not load', str(broken), 'Fix:'):
        assert words in said


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
    assert 'install the torchvision of this torch' in mmcv('-c', code, status=1)
