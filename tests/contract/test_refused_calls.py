"""Calls of functions that are refused, by the name of the argument and with the fix."""

from functools import partial

import pytest
import torch

from mmrank.errors import UserError
from mmrank.functional import (
    auroc,
    average_precision,
    graded_average_precision,
    k_nearest_votes,
    level_metrics,
    nearest_in_gallery,
    partial_auroc,
    recall_curve,
    retrieval_curves,
    retrieval_metrics,
)
from mmrank.metrics.best_positive_rank import best_positive_rank
from mmrank.metrics.top_k_inner_product import top_k_inner_product
from mmrank.state.sample_state import check_sample_ids

X, Y = torch.ones(3, 2), torch.arange(3)
MULTI_HOT = torch.eye(3)
NONE = Y[:0]
FOUR = torch.randn(4, 2)


def with_number(number):
    return X.index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(number))


def of(*numbers):
    return torch.tensor(numbers)


#: What is passed to ``retrieval_metrics``, and the message.
SETS = [
    ((X[0], Y), 'queries must be of shape'),
    ((X.long(), Y), r'queries\.float\(\)'),
    ((X, Y.float()), 'query_labels.*integer.*float32'),
    ((X, Y, X), 'go together'),
    ((X, Y, X[:, :1], Y), 'the same columns'),
    *(((with_number(x), Y), r'queries\[1\].*1 of 3 rows') for x in (torch.nan, torch.inf)),
    *(((X, Y, with_number(x), Y), r'gallery\[1\]') for x in (torch.nan, -torch.inf)),
    ((X, of([0, 7], [1, 2], [1, 3])), 'must be multi-hot.*got 7.*level_metrics'),
    ((X, of([0.0, 0.3], [1, 0], [0, 1])), r'must be multi-hot.*got 0\.3'),
    ((X, of([0], [1], [1])), r'squeeze\(1\)'),
    ((X, torch.ones(2, 4)), r'multi-hot, \(3, classes\), got \(2, 4\)'),
    ((X, MULTI_HOT, X.clone(), torch.ones(3, 4)), r'\(3, 3\) and \(3, 4\).*the same columns'),
    ((X, MULTI_HOT, X.clone()), 'go together'),
    ((X, MULTI_HOT, X, MULTI_HOT.flip(0)), 'is the very tensor queries'),
]
#: The same with ids that are left out.
LEFT_OUT = [
    ((X, Y, X.clone(), Y), Y, 'leave_out must be a pair, ids of the queries and gallery'),
    ((X, Y), (Y, Y), r'leave_out must be \(Q,\) ids of the queries, got 2'),
    ((X, Y, X.clone(), Y), (Y, Y[:2]), r'leave_out of the gallery must hold .*\(3,\)'),
    ((X, Y), Y.float(), 'leave_out of the queries must be of an integer dtype'),
]
#: Such as the -1 of junk images, and of rows without a label.
BELOW = 'labels holds .* below 0.*Fix: .*keep = .*labels >= 0.*'
CLASSES, UNKNOWN = of(0, 0, 1, 1), of(0, 0, -1, -1)
#: Weights of three scores, and the message.
WEIGHTS = [
    (of(1.0, -1.0, 1.0), 'weight must be finite and >= 0'),
    (of(1.0, torch.inf, 1.0), 'weight must be finite and >= 0'),
    (of(1.0, torch.nan, 1.0), 'weight is NaN'),
    (torch.ones(2), r'weight must have shape \(3,\)'),
    ([1.0] * 3, 'weight must be a tensor, got list'),
]
METRICS = [average_precision, auroc, partial_auroc, graded_average_precision]
#: A function, its arguments, and the message.
CALLS = [
    *((retrieval_metrics, sets, message) for sets, message in SETS),
    (retrieval_metrics, (FOUR, UNKNOWN, FOUR.clone(), CLASSES), BELOW),
    (retrieval_metrics, (FOUR, CLASSES, FOUR.clone(), UNKNOWN.int()), BELOW),
    (retrieval_curves, (FOUR, UNKNOWN), BELOW),
    (level_metrics, (FOUR, torch.stack([UNKNOWN, UNKNOWN], 1)), BELOW),
    (level_metrics, (X, Y), r'labels must be \(rows, levels\).*\(3,\)'),
    *((partial(retrieval_metrics, leave_out=ids), sets, text) for sets, ids, text in LEFT_OUT),
    *((partial(retrieval_curves, points=x), (X, Y), 'points must be') for x in (1, 0, True, 2.5)),
    (recall_curve, (retrieval_metrics(X, Y), [0]), 'recall_at must be an int >= 1, got 0'),
    (retrieval_metrics(X, Y).summary, (1,), 'list of integers'),
    (nearest_in_gallery, (X, X, 0), 'count must be an int >= 1'),
    *(
        (partial(metric, weight=weight), (torch.arange(3.0), of(1, 0, 1)), text)
        for metric in METRICS
        for weight, text in WEIGHTS
    ),
    (average_precision, (torch.zeros(3), torch.zeros(2)), '1-D of one length'),
    (average_precision, (Y, torch.zeros(3)), 'float dtype'),
    (best_positive_rank, (with_number(torch.nan), X, Y, Y), 'queries hold NaN'),
    (k_nearest_votes, (X, X, Y, 4, 0), 'k must be at least 1'),
    (k_nearest_votes, (X, X, Y, 4, 2, 0), 'tau must be > 0'),
    (k_nearest_votes, (X, X, Y[:-1], 4), 'bank_labels'),
    (top_k_inner_product, (X, X, 0, NONE, NONE), 'k must be'),
    (top_k_inner_product, (X, X, 1, of(1, 0), NONE), 'ascend'),
    (check_sample_ids, (of(0, 6), 2, 6), r'0 to 6, but .* \[0, 6\).*Fix: num_samples='),
    (check_sample_ids, (of(-1, 2), 2, 6), r'-1 to 2, but .* \[0, 6\).*Fix: num_samples='),
    (check_sample_ids, (of(0.0, 1.0), 2, 6), r'float32; call sample_idx.long'),
    (check_sample_ids, (of(True, False), 2, 6), 'bool'),
    (check_sample_ids, (of(1), 2, 6), r'must have shape \(2,\)'),
    (check_sample_ids, (of([1], [2]), 2, 6), r'got \(2, 1\)'),
    (check_sample_ids, ([0, 1], 2), 'as_tensor'),
]


@pytest.mark.parametrize(('function', 'arguments', 'message'), CALLS)
def test_what_is_wrong_is_named(function, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        function(*arguments)
    assert message != BELOW or isinstance(caught.value, UserError)
