"""The kernels become GPU code, down to the assembler; no GPU is needed."""

import os

import pytest

triton = pytest.importorskip('triton')
if os.environ.get('TRITON_INTERPRET') == '1':
    pytest.skip('the interpreter makes no code', allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from mmrank.functional.pairwise.triton import gradient as triton_gradient  # noqa: E402
from mmrank.functional.pairwise.triton import moments as triton_moments  # noqa: E402
from mmrank.functional.pairwise.triton import tables as triton_tables  # noqa: E402

FORMAT = dict(FRACTION=25, COUNT_AT=44)
STREAM = dict(HAS_MASK=True, BLOCK=512, neg_col=1, mask_col=1)
KERNELS = {
    triton_tables.rank_kernel: dict(BI=16, BK=64),
    triton_tables.table_kernel: dict(BLOCK=256),
    triton_moments.moment_kernel: dict(TILES=16, **STREAM, **FORMAT),
    triton_moments.collect_kernel: dict(BLOCK=128, **FORMAT),
    triton_moments.evaluate_kernel: dict(BI=16, BK=128),
    triton_gradient.coefficient_kernel: dict(BK=32, BI=64),
    triton_gradient.gradient_kernel: dict(out_col=1, **STREAM),
}
INTEGERS = {
    '*u8': ['mask_ptr'],
    '*i32': ['low_ptr', 'high_ptr', 'size_ptr', 'lut_ptr'],
    '*i64': ['crowd_ptr', 'sum_ptr'],
    'i64': ['tau_bits'],
}


def _signature(kernel, constants, scores, compared):
    """Type of each argument, as a launch would find it."""
    types = {name: t for t, names in INTEGERS.items() for name in names}
    types |= dict.fromkeys(('pos_ptr', 'neg_ptr', 'out_ptr'), f'*{scores}')
    types |= dict.fromkeys(('cut_ptr', 'tab_ptr', 'coef_ptr'), f'*{compared}')
    return {
        name: 'constexpr'
        if name in constants
        else types.get(name, '*fp64' if name.endswith('_ptr') else 'i32')
        for name in kernel.arg_names
    }


def _programs():
    """Kernel and formats; those that compile to the same code once."""
    found = {}
    for kernel in KERNELS:
        for formats in (
            ('fp32', 'fp32', 30, 2),
            ('bf16', 'fp32', 30, 2),
            ('fp16', 'fp32', 30, 2),
            ('fp64', 'fp64', 43, 3),
        ):
            scores, compared, square, words = formats
            constants = _constants(kernel, square, words)
            types = _signature(kernel, constants, scores, compared)
            key = kernel.__name__, str(types), str(constants)
            found.setdefault(key, (kernel, *formats))
    return list(found.values())


def _constants(kernel, square, words):
    given = KERNELS[kernel] | dict(SQUARE=square, WORDS=words)
    return {k: v for k, v in given.items() if k in kernel.arg_names}


@pytest.mark.processes
@pytest.mark.parametrize(
    ('kernel', 'scores', 'compared', 'square', 'words'),
    _programs(),
    ids=lambda x: getattr(x, '__name__', str(x)),
)
def test_assembles_for_hopper(
    kernel, scores, compared, square, words, monkeypatch, tmp_path
):
    monkeypatch.setenv('TRITON_CACHE_DIR', str(tmp_path))
    names = kernel.arg_names
    constants = _constants(kernel, square, words)
    source = ASTSource(
        kernel,
        _signature(kernel, constants, scores, compared),
        {(names.index(k),): v for k, v in constants.items()},
    )
    code = triton.compile(source, target=GPUTarget('cuda', 90, 32))
    assert len(code.asm['cubin']) > 1000
    if kernel is triton_moments.moment_kernel:
        # Integer atomics; no float64 arithmetic per score but one addition.
        ptx = code.asm['ptx']
        assert 'atom.global.gpu.relaxed.add.u64' in ptx
        if compared == 'fp32':
            assert 'fma.rn.f64' not in ptx
