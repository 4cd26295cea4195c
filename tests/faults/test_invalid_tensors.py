"""Tensors that no loss should be given, for every registered loss.

A wrong shape, dtype or label is refused with a message, not broadcast. An extreme number shows in
the value or leaves the gradients alone, and the state of the loss survives it.
"""

import random
import re
from dataclasses import replace

import pytest
import torch
from subjects import CLASSES, call_rows, cases, make

from mmrank.state import MeanPositiveScore

CASES = cases()
#: One of the settings of each loss.
ONE_EACH = list({case.name: case for case in reversed(CASES)}.values())
ROWS = [case for case in CASES if case.kind == 'rows']
N = 6
NAN = float('nan')
LABELS = torch.tensor([0, 1, 2, 0, 1, 1])


def label_matrix(*changes):
    matrix = torch.nn.functional.one_hot(LABELS, CLASSES).float()
    for place, value in changes:
        matrix[place] = value
    return matrix


#: What is wrong, and the field that the message has to name.
WRONG = {
    'a label more': (dict(target=torch.zeros(N + 1).long()), 'target'),
    'a label fewer': (dict(target=torch.zeros(N - 1).long()), 'target'),
    'one label': (dict(target=torch.zeros(1).long()), 'target'),
    'a column more': (dict(target=torch.zeros(N, CLASSES + 1)), 'target'),
    'a row more': (dict(target=torch.zeros(N + 1, CLASSES)), 'target'),
    'a NaN index': (dict(target=torch.full((N,), NAN)), 'target'),
    'half an index': (dict(target=LABELS + 0.5), 'target'),
    'an index too high': (dict(target=LABELS + CLASSES), 'target'),
    'a negative index': (dict(target=LABELS - 1), 'target'),
    'one weight': (dict(weight=torch.ones(1)), 'weight'),
    'a weight more': (dict(weight=torch.ones(N + 1)), 'weight'),
    'a column of weights': (dict(weight=torch.ones(N, 1)), 'weight'),
    'a weight without shape': (dict(weight=torch.tensor(1.0)), 'weight'),
    'a NaN weight': (dict(weight=torch.full((N,), NAN)), 'weight'),
    'a negative weight': (dict(weight=torch.tensor([5.0, 1, 1, 1, 1, -0.1])), 'weight'),
    'an infinite weight': (dict(weight=torch.tensor([5.0, 1, 1, 1, 1, torch.inf])), 'weight'),
    'integer scores': (dict(cls_score=torch.ones(N, CLASSES).int()), 'score'),
    'deep scores': (dict(cls_score=torch.ones(N, CLASSES, 1)), 'cls_score'),
}


def call_six(case, cls_score=None, target=LABELS, **options):
    """The loss of six ordinary rows, some of its arguments changed."""
    cls_score = torch.zeros(N, CLASSES) if cls_score is None else cls_score
    return call_rows(case.build(), cls_score, target, torch.arange(N), torch.ones(N), **options)


@pytest.mark.parametrize('case', ROWS, ids=str)
def test_rows_that_do_not_belong_together(case):
    assert call_six(case).isfinite()
    assert call_six(case, weight=torch.ones(N)).isfinite()
    for what, (changes, field) in WRONG.items():
        try:
            value = call_six(case, **changes)
        except (ValueError, TypeError) as error:
            message = str(error)
        else:
            pytest.fail(f'{what} was accepted: {value}')
        assert field in message, what
        assert re.search('must|NaN', message), what
        assert re.search('; (give|call|set|weight)|must be|Fix: ', message), what


@pytest.mark.parametrize(
    'case',
    # A box goes with one class, and so does a softmax.
    [
        x
        for x in ROWS
        if getattr(x.build(), 'use_sigmoid', True) and not getattr(x.build(), 'box_input', None)
    ],
    ids=str,
)
def test_a_nan_label_is_no_negative(case):
    assert call_six(case, target=label_matrix()).isfinite()
    with pytest.raises(ValueError, match=r'target is NaN at \[2, 1\], and in'):
        call_six(case, target=label_matrix(((2, 1), NAN)))


@pytest.mark.parametrize('case', [x for x in CASES if x.kind != 'rows'], ids=str)
def test_an_entry_is_missing(case):
    batch = case.batch(8)
    tensors = [*batch.leaves, *batch.fixed]
    for i, x in enumerate(tensors):
        changed = [*tensors[:i], x[:-1], *tensors[i + 1 :]]
        leaves = changed[: len(batch.leaves)]
        fixed = changed[len(batch.leaves) :]
        with pytest.raises((ValueError, TypeError)) as caught:
            replace(batch, leaves=tuple(leaves), fixed=tuple(fixed)).of(case.build())
        assert re.search(
            r'(view|left|right|rows|cols|labels|sample_idx|positive)\w* .*\d',
            str(caught.value),
            re.DOTALL,
        )


@pytest.mark.parametrize('case', ROWS, ids=str)
def test_nan_in_a_class_without_positives(case):
    """It shows in the value, or reaches neither value nor gradient."""
    batch = case.batch()
    scores = batch.leaves[0].clone()
    scores[:, 2] = NAN
    *others, labels, idx = batch.fixed
    labels = torch.where(labels == 2, 1, labels)
    value, gradients = replace(
        batch, leaves=(scores, *batch.leaves[1:]), fixed=(*others, labels, idx)
    ).gradients(case.build())
    if value.isfinite():
        assert all(x.isfinite().all() for x in gradients)
    ignored = getattr(case.build(), 'zero_without_positives', False)
    assert value.isfinite() == (ignored and case.build().mode == 'per_class')


@pytest.mark.parametrize('case', CASES, ids=str)
def test_a_gradient_that_float16_cannot_hold_is_infinite(case):
    """The gradient is that of float32, rounded; it is never NaN, so that the scaler sees it."""
    half = case.batch().mapped(lambda x: (6.5e4 / x.abs().max() * x).half())
    value, gradients = half.gradients(case.build())
    assert value.isfinite()
    expected, slopes = half.mapped(torch.Tensor.float).gradients(case.build())
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    for found, slope in zip(gradients, slopes):
        torch.testing.assert_close(found, slope.half(), rtol=2e-2, atol=1e-3)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SPECIALS = [NAN, torch.inf, -torch.inf, 0.0, -0.0, 6e4, 1e6]
ORDINARY = dict(seed=0, size=7, dtype=torch.float32, exponent=0, specials=[])
#: What once broke a loss or its state.
KNOWN = [
    dict(dtype=torch.float64, exponent=39),  # more than a state can hold
    dict(exponent=6),  # a spike that a mean takes 915 batches to forget
    dict(size=2, specials=[NAN]),  # a class without positives
    dict(size=2, specials=[NAN, NAN, NAN], dtype=torch.float16),
    dict(seed=112, size=5, specials=[torch.inf] * 2, dtype=torch.float16),
]


def random_recipe(seed):
    """Any batch: its size, dtype, range and what its numbers are not."""
    draw = random.Random(seed)
    return dict(
        seed=seed,
        size=draw.randint(0, 7),
        dtype=draw.choice(DTYPES),
        exponent=draw.choice([draw.randint(-50, 60), draw.randint(-2, 2)]),
        specials=draw.choices(SPECIALS, k=draw.randint(0, 3)),
    )


def edge_case(loss, kind, recipe):
    """A batch made by a recipe."""
    g = torch.Generator().manual_seed(recipe['seed'])

    def changed(x):
        x = (x * 10.0 ** recipe['exponent']).to(recipe['dtype'])
        flat = x.reshape(-1)
        for special in recipe['specials'] if len(flat) else ():
            flat[torch.randint(len(flat), (1,), generator=g)] = special
        return x

    batch = make(kind, loss, recipe['size'], recipe['seed'])
    return batch.mapped(changed)


def attack(case, recipe):
    loss = case.build()
    fresh = {k: v.clone() for k, v in loss.state_dict().items()}
    case.batch().of(loss)
    means = [x for x in loss.modules() if isinstance(x, MeanPositiveScore)]
    before = [(x.mean.clone(), x.num_updates > 0) for x in means]
    batch = edge_case(loss, case.kind, recipe)
    refused = ''
    try:
        value, gradients = batch.gradients(loss)
    except (ValueError, TypeError) as error:
        refused = str(error)
    if refused:
        assert re.search('must|at least|not', refused)
    else:
        assert value.dim() == 0
        clean = all(x.isfinite().all() for x in batch.leaves)
        # A NaN of an embedding reaches all that it was multiplied with.
        if value.isfinite() and (clean or case.kind == 'rows'):
            assert not any(x.isnan().any() for x in gradients)
    for name, x in loss.state_dict().items():
        assert (x.isfinite() | (x == fresh[name])).all(), name
    for tracked, (mean, seen) in zip(means, before):
        low, high = tracked.score_range
        most = tracked.momentum * (high - low + mean.abs())
        assert ((tracked.mean - mean).abs() <= most + 1e-5)[seen].all()
    # The next ordinary batch is as good as ever.
    value, gradients = case.batch(seed=2).gradients(loss)
    assert value.isfinite()
    assert all(x.isfinite().all() for x in gradients)


@pytest.mark.filterwarnings('ignore:.* of a batch lies far outside')
@pytest.mark.parametrize('case', ONE_EACH, ids=str)
def test_edge_cases(case):
    for recipe in [*KNOWN, *map(random_recipe, range(3))]:
        attack(case, {**ORDINARY, **recipe})


@pytest.mark.filterwarnings('ignore:.* of a batch lies far outside')
@pytest.mark.slow
@pytest.mark.parametrize('case', CASES, ids=str)
def test_many_edge_cases(case):
    for seed in range(150):
        attack(case, random_recipe(seed))
