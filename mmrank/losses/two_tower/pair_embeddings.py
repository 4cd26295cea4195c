"""Embeddings of two towers: which of them each pair has, checked."""

import torch
from torch import Tensor

from mmrank.errors import UserTypeError
from mmrank.tensors import check_index


def common_dtype(left: Tensor, right: Tensor) -> torch.dtype:
    """Dtype that holds the embeddings of both towers, at least float32."""
    return torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)


def check_entities_given(rows: Tensor | None, cols: Tensor | None) -> None:
    """Raise UserTypeError where a call leaves the entities of its pairs out."""
    if rows is None or cols is None:
        raise UserTypeError(
            'rows and cols, the left and the right entity of each pair, are missing. Fix: '
            'loss(left, right, rows, cols)'
        )


def check_widths(left: Tensor, right: Tensor) -> None:
    """Raise ValueError if (U, D) and (V, D) embeddings differ in D."""
    if left.size(1) != right.size(1):
        raise ValueError(
            'left and right must be embeddings of one width, got '
            f'{left.size(1)} and {right.size(1)}'
        )


def embedding_index(name: str, embeddings: Tensor, index: Tensor | None, num_pairs: int) -> Tensor:
    """(B,) int64 row of the embeddings that each of B pairs has; else TypeError or ValueError.

    ``name`` is ``left`` or ``right``. The (U, D) embeddings are one for each distinct entity, or
    without an ``index`` one for each pair.
    """
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f'{name} must be a matrix of floats, got '
            f'{tuple(embeddings.shape)} of {embeddings.dtype}'
        )
    if index is not None:
        fix = f'one row of {name} for each pair'
        check_index(f'{name}_index', index, len(embeddings), fix, shape=(num_pairs,))
        return index.long()
    if len(embeddings) != num_pairs:
        raise ValueError(
            f'{name} has {len(embeddings)} embeddings for {num_pairs} '
            f'pairs; with one for each distinct entity pass {name}_index'
        )
    return torch.arange(num_pairs, device=embeddings.device)


def embeddings_of_pairs(
    name: str, embeddings: Tensor, index: Tensor | None, num_pairs: int
) -> Tensor:
    """(B, D) embeddings of the pairs; see :func:`embedding_index`."""
    rows = embedding_index(name, embeddings, index, num_pairs)
    return embeddings if index is None else embeddings.index_select(0, rows)
