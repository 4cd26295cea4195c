"""The definitions of the retrieval figures written out, in float64."""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import torch

from mmrank.tensors import at_least_float32


def brute_force_query(scores, is_positive):
    """AP, R-Precision, MAP@R, first rank and number of the positives of one query."""
    pairs = list(zip(scores, is_positive))
    positives = sorted((s for s, y in pairs if y), reverse=True)
    if not positives:
        return [np.nan, np.nan, np.nan, 0, 0]
    column = np.array(positives)[:, None]
    above = (np.array(scores) >= column).sum(1)
    pos_above = (np.array(positives) >= column).sum(1)
    # Negatives first among ties.
    ranked = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    hits = [bool(y) for _, y in ranked]
    r = len(positives)
    precision_at = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    map_at_r = sum(precision_at[k] for k in range(r) if hits[k]) / r
    return [np.mean(pos_above / above), sum(hits[:r]) / r, map_at_r, 1 + hits.index(True), r]


def similarity_matrix(queries, gallery, similarity):
    """Float64 scores of lists of lists."""
    queries, gallery = np.array(queries), np.array(gallery)
    if similarity == 'cosine':
        queries, gallery = (
            x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
            for x in (queries, gallery)
        )
    return queries @ gallery.T


def brute_force(scores, positive, left_out):
    """(Q, 5) figures of each query, of (Q, N) scores and masks."""
    figures = []
    for row, own, out in zip(scores, positive.tolist(), left_out.tolist()):
        kept = [j for j in range(len(row)) if not out[j]]
        figures.append(brute_force_query([row[j] for j in kept], [own[j] for j in kept]))
    return torch.tensor(figures, dtype=torch.float64).view(-1, 5)


def by_dot(function, *args, similarity='dot', memory_limit=2**30, **options):
    """Call a metric with inner products, which tie exactly for integers, in place of cosines."""
    place = 'mmrank.metrics.retrieval.input.unit_rows'
    exact = patch(place, at_least_float32) if similarity == 'dot' else nullcontext()
    with exact, in_blocks(memory_limit):
        return function(*args, **options)


def in_blocks(memory_limit):
    """Context in which a block of queries takes at most so many bytes."""
    return patch('mmrank.metrics.retrieval.input.MEMORY_LIMIT', memory_limit)
