"""A GPU step without a GPU: its operators and launches, on meta tensors.

Tensors of the meta device have shapes and no values. Code takes the branches of an accelerator, and
whatever needs a value on the host, such as ``item()`` or ``nonzero()``, raises an error: a step
that runs does not wait for the device there. What does not raise, a copy between host and device,
is among
the operators: as itself, as an operator that is given tensors of both, or as
a tensor made of numbers. Launches are recorded and not run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmrank.functional.pairwise import interval_sums
from mmrank.functional.pairwise.triton import sums


class Launch(NamedTuple):
    """One launch of a kernel.

    Attributes:
        kernel: Its name.
        grid: Number of programs in each dimension.
        arguments: By name; tensors as they are.
    """

    kernel: str
    grid: tuple[int, ...]
    arguments: dict[str, Any]

    def numbers(self) -> dict[str, Any]:
        """What a CUDA graph would hold fixed: all but the tensors."""
        return {k: v for k, v in self.arguments.items() if not isinstance(v, Tensor)}


class _RecordedKernel:
    """Stands for a kernel: ``kernel[grid](*arguments)`` is recorded."""

    def __init__(self, kernel, on_launch: Callable) -> None:
        self.kernel, self.on_launch = kernel, on_launch

    def __getitem__(self, grid: tuple[int, ...]) -> Callable:
        def launch(*values, **more):
            arguments = dict(zip(self.kernel.arg_names, values)) | more
            recorded = Launch(self.kernel.__name__, grid, arguments)
            run = self.kernel[grid]
            self.on_launch(recorded, lambda: run(*values, **more))

        return launch


@contextmanager
def recorded_launches(on_launch: Callable) -> Iterator[None]:
    """Call ``on_launch(launch, run)`` instead of every launch.

    Args:
        on_launch: Receives a :class:`Launch` and a function that runs it.
    """
    from mmrank.functional.pairwise.triton import gradient, moments, tables

    patches = [
        mock.patch.object(sums, '_sums', sums.launch_sums),
        mock.patch.object(sums, '_gradient', sums.launch_gradient),
    ]
    for module in (tables, moments, gradient):
        for name in vars(module):
            if name.endswith('_kernel'):
                stand_in = _RecordedKernel(getattr(module, name), on_launch)
                patches.append(mock.patch.object(module, name, stand_in))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


_COPIES = ('aten._to_copy', 'aten.copy_', 'torch.')
_MADE_OF_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)


class Operator(NamedTuple):
    """One operator that was called.

    Attributes:
        name: As in ``aten.add.Tensor``.
        inputs: Device type and number of entries of each tensor it read.
        outputs: The same of each tensor it returned.
        moves_data: False for a view and for memory without values.
    """

    name: str
    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]
    moves_data: bool

    def copies_between_devices(self) -> bool:
        """Whether values go from the host to the device, or back."""
        is_copy = self.name.startswith(_COPIES)
        # A single value of the host is an argument of the launch.
        values = [d for d, n in self.inputs if is_copy or d != 'cpu' or n > 1]
        return len({*values, *(d for d, _ in self.outputs)}) > 1

    def size(self) -> int:
        """Entries of the largest tensor."""
        return max((n for _, n in self.inputs + self.outputs), default=0)


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operator] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))

        def tensors(values):
            return [
                (x.device.type, x.numel()) for x in tree_leaves(values) if isinstance(x, Tensor)
            ]

        returns = func._schema.returns
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        name = str(func)
        is_empty = 'empty' in name or name.startswith('aten.detach')
        self.found.append(
            Operator(name, tensors((args, kwargs)), tensors(result), not (is_view or is_empty))
        )
        return result


class _Numbers(TorchFunctionMode):
    """Records the tensors that are made of numbers of the host.

    Operators do not show them: the meta device leaves the copy out.
    """

    def __init__(self, found: list[Operator]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in _MADE_OF_NUMBERS and result.device.type != 'cpu':
            data = args[1] if func is Tensor.new_tensor else args[0]
            if not isinstance(data, Tensor):
                size = result.numel()
                self.found.append(
                    Operator(
                        f'torch.{func.__name__}',
                        [('cpu', size)],
                        [(result.device.type, size)],
                        True,
                    )
                )
        return result


class DryRun(NamedTuple):
    """What a step did.

    Attributes:
        operators: Of torch, in order.
        launches: Of the kernels, in order.
    """

    operators: list[Operator]
    launches: list[Launch]

    def copies_between_devices(self) -> list[str]:
        """Operators at which host and device wait for each other."""
        return [op.name for op in self.operators if op.copies_between_devices()]

    def passes_over(self, entries: int) -> list[str]:
        """Operators of torch that move at least so many entries."""
        return [op.name for op in self.operators if op.moves_data and op.size() >= entries]


def dry_run(step: Callable[[], object]) -> DryRun:
    """Run a step on meta tensors as if they lay on a GPU.

    Args:
        step: Makes its tensors on the meta device, and calls what is to be recorded.

    Raises:
        NotImplementedError, RuntimeError: Where the step needs a value on
            the host.
    """
    launches: list[Launch] = []
    operators = _Operators()

    def can_run(device: torch.device) -> bool:
        return device.type != 'cpu'

    with (
        recorded_launches(lambda launch, run: launches.append(launch)),
        mock.patch.object(interval_sums, 'can_run', can_run),
        mock.patch('torch.cuda.device_of', return_value=nullcontext()),
        _Numbers(operators.found),
        operators,
    ):
        step()
    return DryRun(operators.found, launches)
