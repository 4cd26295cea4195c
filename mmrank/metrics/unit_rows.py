"""Embeddings of length 1."""

import torch
from torch import Tensor

from mmrank.autograd import Function


class _UnitRows(Function):
    """Division by the length, whose gradient reads the rows three times.

    The gradient of ``torch.nn.functional.normalize`` reads and writes them a dozen times. It is
    made of operations that autograd knows, so it can be differentiated.
    """

    @staticmethod
    def forward(ctx, x):
        scale = torch.maximum(x.amax(1, keepdim=True), x.amin(1, keepdim=True).neg_())
        zero = scale < 2**16 * torch.finfo(x.dtype).tiny
        # x / inf = 0, and so is the gradient of a row that counts as zero.
        # The squares of x itself may leave the range.
        rows = x / scale.masked_fill_(zero, torch.inf)
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        rows /= length.masked_fill_(zero, 1)
        ctx.save_for_backward(x, rows, length.mul_(scale))
        return rows

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        x, rows, length = ctx.saved_tensors
        if torch.is_grad_enabled():
            # The same value, as a function of x.
            again = torch.linalg.vecdot(x, rows)[:, None]
            length = length + (again - again.detach())
        along = torch.linalg.vecdot(grad, rows)[:, None]
        return torch.addcmul(grad, rows, along, value=-1) / length


def unit_rows(x: Tensor) -> Tensor:
    """Divide each of (n, D) rows by its Euclidean length, in at least float32.

    In half precision close cosines would tie. A row of 1e-30 or 1e30, whose squares leave the range
    of float32, has a length like any other. A row of zeros stays zero and has no gradient, and so
    has one of entries below 8e-34 (2e-303 in float64), whose gradient would not be finite.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return _UnitRows.apply(x) if x.numel() else x
