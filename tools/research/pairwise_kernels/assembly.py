"""GPU code of the Triton kernels, and the resources that it takes.

No GPU is needed: triton compiles for any architecture, and its assembler counts registers and what
it spills. Imports triton, without its interpreter.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler import ASTSource, CompiledKernel

from mmrank.functional.pairwise.triton import gradient, moments, tables
from mmrank.functional.pairwise.triton.sums import SIZES

_PACKED = dict(FRACTION=25, COUNT_AT=44)
_STREAM = dict(HAS_MASK=True, neg_col=1, mask_col=1)
#: The constants that each kernel is launched with.
KERNELS = {
    tables.rank_kernel: dict(BI=16, BK=32),
    tables.table_kernel: dict(BLOCK=256),
    moments.moment_kernel: dict(BLOCK=SIZES.block, TILES=SIZES.tiles, **_STREAM, **_PACKED),
    moments.collect_kernel: dict(BLOCK=128, **_PACKED),
    moments.evaluate_kernel: dict(BI=16, BK=64),
    gradient.coefficient_kernel: dict(BK=32, BI=64),
    gradient.gradient_kernel: dict(BLOCK=SIZES.gradient_block, out_col=1, **_STREAM),
}
_INTEGERS = {
    '*u8': ['mask_ptr'],
    '*i32': ['low_ptr', 'high_ptr', 'size_ptr', 'lut_ptr'],
    '*i64': ['crowd_ptr', 'sum_ptr'],
    'i64': ['tau_bits'],
}


class ScoreFormat(NamedTuple):
    """Types of one launch.

    Attributes:
        scores: Triton's name of the dtype of the scores.
        compared: That of the dtype that they are compared in.
        square: Binary digits of the squares.
        words: 64-bit words of an interval.
    """

    scores: str
    compared: str
    square: int
    words: int


FORMATS = (
    ScoreFormat('fp32', 'fp32', 30, 2),
    ScoreFormat('bf16', 'fp32', 30, 2),
    ScoreFormat('fp16', 'fp32', 30, 2),
    ScoreFormat('fp64', 'fp64', 43, 3),
)


def constants_of(kernel, form: ScoreFormat) -> dict:
    """The compile-time constants of a kernel."""
    given = KERNELS[kernel] | dict(SQUARE=form.square, WORDS=form.words)
    return {k: v for k, v in given.items() if k in kernel.arg_names}


def signature_of(kernel, form: ScoreFormat) -> dict[str, str]:
    """Type of each argument, as a launch would find it."""
    constants = constants_of(kernel, form)
    types = {name: t for t, names in _INTEGERS.items() for name in names}
    types |= dict.fromkeys(('pos_ptr', 'neg_ptr', 'out_ptr'), f'*{form.scores}')
    types |= dict.fromkeys(('cut_ptr', 'tab_ptr', 'coef_ptr'), f'*{form.compared}')
    return {
        name: 'constexpr'
        if name in constants
        else types.get(name, '*fp64' if name.endswith('_ptr') else 'i32')
        for name in kernel.arg_names
    }


def compile_kernel(kernel, form: ScoreFormat, capability: int) -> CompiledKernel:
    """Compile down to the assembler.

    Args:
        kernel: A key of :data:`KERNELS`.
        form: Types of the launch.
        capability: 80 for sm_80, and so on.
    """
    names = kernel.arg_names
    constants = constants_of(kernel, form)
    source = ASTSource(
        kernel, signature_of(kernel, form), {(names.index(k),): v for k, v in constants.items()}
    )
    warps = SIZES.warps
    if kernel is gradient.gradient_kernel:
        warps = SIZES.gradient_warps
    elif kernel is not moments.moment_kernel:
        warps = 4
    return triton.compile(
        source, target=GPUTarget('cuda', capability, 32), options=dict(num_warps=warps)
    )


class Resources(NamedTuple):
    """What one thread, and one program, of a kernel takes.

    Attributes:
        registers: 32-bit registers of a thread.
        spill_stores: Bytes that a thread writes to memory for want of registers.
        spill_loads: Bytes that it reads back.
        stack: Bytes of a thread's stack.
        shared: Bytes of shared memory of a program.
        threads: Threads of a program.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    threads: int

    def warps_per_processor(self) -> int:
        """Warps that fit on one multiprocessor by registers, of 64.

        It has 65,536 registers on sm_80 to sm_100, and hands them out in
        units of 256 for a warp.
        """
        per_warp = -(-self.registers * 32 // 256) * 256
        warps = self.threads // 32
        return min(65536 // (per_warp * warps) * warps, 64)


def resources_of(compiled: CompiledKernel, capability: int) -> Resources:
    """Read the resources from the report of ``ptxas -v``.

    Raises:
        RuntimeError: If the report has no such lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'kernel.ptx'
        path.write_text(compiled.asm['ptx'], 'utf-8')
        done = subprocess.run(
            [
                get_ptxas(capability).path,
                *('-v', '--regAllocOptLevel=2'),
                f'--gpu-name={sm_arch_from_capability(capability)}',
                *(path, '-o', path.with_suffix('.cubin')),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(
        r'(\d+) bytes stack frame, (\d+) bytes spill stores, '
        r'(\d+) bytes spill loads.*?Used (\d+) registers',
        done.stderr,
        re.DOTALL,
    )
    if found is None:
        raise RuntimeError(f'no resources in the report: {done.stderr!r}')
    stack, stores, loads, registers = (int(x) for x in found.groups())
    data = compiled.metadata
    return Resources(registers, stores, loads, stack, data.shared, 32 * data.num_warps)
