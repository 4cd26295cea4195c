"""The definitions of the retrieval figures written out, in float64."""

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np

from mmrank.tensors import at_least_float32


def brute_force_query(scores, is_positive, recall_at):
    """Figures of one query; None without a positive."""
    pairs = list(zip(scores, is_positive))
    positives = sorted((s for s, y in pairs if y), reverse=True)
    if not positives:
        return None
    column = np.array(positives)[:, None]
    above = (np.array(scores) >= column).sum(1)
    pos_above = (np.array(positives) >= column).sum(1)
    # Negatives first among ties.
    ranked = sorted(pairs, key=lambda pair: (-pair[0], pair[1]))
    hits = [bool(y) for _, y in ranked]
    r = len(positives)
    precision_at = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    result = {
        'mAP': np.mean(pos_above / above),
        'R_precision': sum(hits[:r]) / r,
        'MAP_at_R': sum(precision_at[k] for k in range(r) if hits[k]) / r,
    }
    for k in recall_at:
        result[f'recall@{k}'] = float(any(hits[:k]))
    return result


def similarity_matrix(queries, gallery, similarity):
    """Float64 scores of lists of lists."""
    queries, gallery = np.array(queries), np.array(gallery)
    if similarity == 'cosine':
        queries, gallery = (
            x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
            for x in (queries, gallery)
        )
    return queries @ gallery.T


def brute_force(scores, query_labels, gallery_labels, recall_at, same_set, ids=None):
    """Means over the queries with a positive, and both counts; ``ids`` are of both sets."""
    figures = []
    for i, (row, label) in enumerate(zip(scores, query_labels)):
        kept = [j for j in range(len(row)) if not (same_set and i == j)]
        if ids is not None:
            kept = [j for j in kept if (gallery_labels[j], ids[1][j]) != (label, ids[0][i])]
        figures.append(
            brute_force_query(
                [row[j] for j in kept], [gallery_labels[j] == label for j in kept], recall_at
            )
        )
    usable = [x for x in figures if x is not None]
    result = {
        name: sum(x[name] for x in usable) / len(usable) for name in (usable[0] if usable else ())
    }
    result['queries'] = len(usable)
    result['queries_without_positive'] = len(figures) - len(usable)
    return result


def by_dot(function, *args, similarity='dot', memory_limit=2**30, **options):
    """Call a metric with inner products, which tie exactly for integers, in place of cosines."""
    place = 'mmrank.metrics.retrieval.input.unit_rows'
    exact = patch(place, at_least_float32) if similarity == 'dot' else nullcontext()
    with exact, in_blocks(memory_limit):
        return function(*args, **options)


def in_blocks(memory_limit):
    """Context in which a block of queries takes at most so many bytes."""
    return patch('mmrank.metrics.retrieval.input.MEMORY_LIMIT', memory_limit)
