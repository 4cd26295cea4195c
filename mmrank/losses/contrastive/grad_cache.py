"""Embeddings of a large batch, with the activations of a part of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmrank.errors import UserError, UserTypeError
from mmrank.settings import check_at_least


def grad_cache(
    encode: Callable, rows: Tensor | Collection, chunk: int, modules: Sequence[nn.Module] = ()
) -> Tensor:
    """Embed a batch in chunks, of which one at a time has its activations.

    The loss sees the embeddings of the whole batch; its backward pass embeds each chunk but the
    last once more. Source: Gao et al., Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup, RepL4NLP 2021. Here each chunk is a checkpoint of ``torch.utils.checkpoint``, so
    there is one backward pass: DistributedDataParallel sends each gradient once, after the last
    chunk, and gradient scaling, accumulation and autocast are as without chunks.

    The second pass of a chunk starts from torch's random states of its first, and from the buffers
    of the modules as they were then; afterwards these have what the first passes left in them. So
    dropout repeats itself, and running statistics take in each chunk once; random numbers of numpy
    and of Python are not repeated. The gradient is the gradient of ``encode(rows)`` where a row
    does not depend on others: batch norm in training takes a chunk's statistics for the batch's.

    Args:
        encode: Embeds some of the rows: returns (n, ...) of n of them.
        rows: (B, ...) tensor, a sequence of B, such as texts; or columns of B rows each, a mapping
            such as a BatchEncoding, or a tuple of tensors.
        chunk: Rows at a time, >= 1.
        modules: Those that ``encode`` calls; ``encode`` itself if it is one.

    Returns:
        (B, ...), what ``encode(rows)`` returns.

    Example:
        >>> images, encoder = torch.randn(10, 3), nn.Linear(3, 2)
        >>> grad_cache(encoder, images, chunk=4).shape
        torch.Size([10, 2])
    """
    check_at_least(1, chunk=chunk)
    columns = _columns(rows)
    sizes = {len(x) for x in columns} or {len(rows)}
    if len(sizes) > 1 or (isinstance(rows, Mapping) and not columns):
        what = 'rows must be columns with as many rows each'
        fix = "tensors of (B, ...) each, such as tokenizer(texts, return_tensors='pt')"
        raise UserError(f'{what}, got shapes {[tuple(x.shape) for x in columns]}', fix)
    size = sizes.pop()
    if size <= chunk:
        return _embedded(encode, rows)
    if not modules and isinstance(encode, nn.Module):
        modules = [encode]
    parts = []
    last = (size - 1) // chunk * chunk
    for start in range(0, last, chunk):
        parts.append(_checkpointed(encode, _part(rows, slice(start, start + chunk)), modules))
    parts.append(_embedded(encode, _part(rows, slice(last, None))))
    return torch.cat(parts)


def _embedded(encode: Callable, part) -> Tensor:
    embeddings = encode(part)
    if not isinstance(embeddings, Tensor):
        raise UserTypeError(
            f'encode must return one tensor, got {type(embeddings).__name__}. Fix: '
            "lambda x: encode(x)['embedding'] of a dict, encode(x)[0] of a tuple, and modules=[...]"
        )
    return embeddings


def _columns(rows) -> list[Tensor]:
    """Tensors of a mapping, or of a tuple of tensors, with a row for each sample."""
    values = rows.values() if isinstance(rows, Mapping) else rows
    is_columns = isinstance(rows, (Mapping, tuple))
    return [x for x in values if isinstance(x, Tensor) and x.dim()] if is_columns else []


def _part(rows, part: slice):
    if not _columns(rows):
        return rows[part]
    if not isinstance(rows, Mapping):
        return tuple(x[part] if isinstance(x, Tensor) and x.dim() else x for x in rows)
    cut = {k: x[part] if isinstance(x, Tensor) and x.dim() else x for k, x in rows.items()}
    return type(rows)(cut)  # pyright: ignore[reportCallIssue]  # a dict, or made of one


def _checkpointed(encode: Callable, part, modules) -> Tensor:
    # The random state of a device is kept if one of the arguments is there, which texts are not.
    weight = next(chain(*(m.parameters() for m in modules)), torch.empty(0))
    embeddings = checkpoint(
        lambda part, _: _embedded(encode, part),
        part,
        weight.detach()[:0],
        use_reentrant=False,
        context_fn=lambda: (nullcontext(), _BuffersOfFirstPass(modules)),
    )
    return cast(Tensor, embeddings)


class _BuffersOfFirstPass:
    """A context with the buffers of modules as they are when it is made, before the first pass."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._buffers = list(chain(*(m.buffers() for m in modules)))
        self._before = [x.clone() for x in self._buffers]

    def __enter__(self) -> None:
        self._after = [x.clone() for x in self._buffers]
        self._write(self._before)

    def __exit__(self, *_) -> None:
        self._write(self._after)

    def _write(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values):
            # Not the buffer itself: autograd would take what the last chunk saved of it for
            # changed, although it is as before in the end.
            buffer.data.copy_(value)
