"""The kernels become GPU code, down to the assembler; no GPU is needed."""

import os

import pytest

triton = pytest.importorskip('triton')
if os.environ.get('TRITON_INTERPRET') == '1':
    pytest.skip('the interpreter makes no code', allow_module_level=True)

import torch  # noqa: E402

from mmrank.functional import OneSidedHuber, pairwise_surrogate_sum  # noqa: E402
from mmrank.functional.pairwise.triton import moments  # noqa: E402
from research.pairwise_kernels import assembly  # noqa: E402
from research.pairwise_kernels.dry_run import dry_run  # noqa: E402


def _programs():
    """Kernel and format; those that compile to the same code once."""
    found = {}
    for kernel in assembly.KERNELS:
        for form in assembly.FORMATS:
            constants = assembly.constants_of(kernel, form)
            types = assembly.signature_of(kernel, form)
            key = kernel.__name__, str(types), str(constants)
            found.setdefault(key, (kernel, form))
    return list(found.values())


@pytest.mark.processes
@pytest.mark.parametrize(
    ('kernel', 'form'),
    _programs(),
    ids=lambda x: getattr(x, '__name__', getattr(x, 'scores', None)),
)
def test_assembles_for_hopper(kernel, form, monkeypatch, tmp_path):
    monkeypatch.setenv('TRITON_CACHE_DIR', str(tmp_path))
    code = assembly.compile_kernel(kernel, form, 90)
    assert len(code.asm['cubin']) > 1000
    if kernel is moments.moment_kernel:
        # Integer atomics; no float64 arithmetic per score but one addition.
        ptx = code.asm['ptx']
        assert 'atom.global.gpu.relaxed.add.u64' in ptx
        if form.compared == 'fp32':
            assert 'fma.rn.f64' not in ptx


@pytest.mark.processes
@pytest.mark.parametrize('architecture', [80, 90, 100])
def test_no_kernel_spills_registers(architecture, monkeypatch, tmp_path):
    monkeypatch.setenv('TRITON_CACHE_DIR', str(tmp_path))
    for kernel in assembly.KERNELS:
        form = assembly.FORMATS[0]
        code = assembly.compile_kernel(kernel, form, architecture)
        found = assembly.resources_of(code, architecture)
        assert 16 <= found.registers <= 255, kernel.__name__
        assert found.spill_stores == found.spill_loads == 0, kernel.__name__
        if kernel.__name__ in ('moment_kernel', 'gradient_kernel'):
            # Half of what a multiprocessor holds hides the memory's delay.
            assert found.warps_per_processor() >= 32


@pytest.mark.parametrize(
    ('registers', 'threads', 'warps'),
    [(32, 128, 64), (33, 128, 48), (64, 128, 32), (255, 128, 8), (64, 256, 32)],
)
def test_warps_that_fit_the_registers(registers, threads, warps):
    found = assembly.Resources(registers, 0, 0, 0, 0, threads)
    assert found.warps_per_processor() == warps


def test_what_is_assembled_is_what_is_launched():
    def step():
        pos = torch.empty(1, 50, device='meta', requires_grad=True)
        neg = torch.empty(1, 9000, device='meta', requires_grad=True)
        mask = torch.empty(1, 9000, dtype=torch.bool, device='meta')
        pairwise_surrogate_sum(
            pos, neg, OneSidedHuber(1.0), neg_mask=mask, method='triton'
        ).sum().backward()

    launches = {x.kernel: x.numbers() for x in dry_run(step).launches}
    assert set(launches) == {k.__name__ for k in assembly.KERNELS}
    for kernel in assembly.KERNELS:
        constants = assembly.constants_of(kernel, assembly.FORMATS[0])
        launched = launches[kernel.__name__]
        assert constants == {name: launched[name] for name in constants}
