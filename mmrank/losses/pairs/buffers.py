"""Memory of a sum over pairs that is computed in blocks."""

import torch
from torch import Tensor


class Buffers:
    """Memory that all blocks share, so that it stays in the cache."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def like(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory of the shape of ``values``."""
        size = values.numel()
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size:
            memory = self._memory[name] = torch.empty(size, dtype=dtype, device=values.device)
        return memory[:size].view(values.shape)

    def copy(self, name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
        return self.like(name, values, dtype).copy_(values)
