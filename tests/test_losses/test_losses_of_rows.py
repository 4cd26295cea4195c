"""What every registered loss of (n, C) scores keeps to: lists, labels, weights, refusals."""

import inspect
import itertools

import pytest
import torch
from registered_losses import CLASSES, build, cases
from torch.nn.functional import one_hot

from mmrank.losses import HeadLoss, RankingLoss

CASES = cases()
ROWS = [case for case in CASES if case.kind == 'rows']
SMALL = [*{case.name: case for case in reversed(ROWS)}.values()]
every_case = pytest.mark.parametrize('case', ROWS, ids=str)
every_loss = pytest.mark.parametrize('case', SMALL, ids=str)


RANKINGS = [case for case in ROWS if isinstance(case.details, RankingLoss)]


class Rows:
    """The batch of a case by its parts."""

    def __init__(self, case, seed=0):
        batch = case.batch(seed=seed)
        self.scores, *boxes = batch.leaves
        *qualities, self.labels, self.ids = batch.fixed
        self.boxes = [*boxes, *qualities]
        self.has_class = self.labels < CLASSES

    def call(self, loss, rows=slice(None), scores=None, labels=None, **options):
        """The loss of some rows, or of other scores or labels."""
        scores = self.scores if scores is None else scores
        labels = self.labels if labels is None else labels
        if self.boxes and getattr(loss, 'box_input', None):
            key = 'box_loss' if loss.box_input == 'loss' else 'quality'
            options[key] = self.boxes[0][rows][self.has_class[rows]]
        if getattr(loss, 'keeps_samples', False):
            options['sample_idx'] = self.ids[rows]
        value = loss(scores[rows], labels[rows], **options)
        return sum(value.values()) if isinstance(value, dict) else value


def state_of(loss):
    return {name: x.clone() for name, x in loss.state_dict().items()}


@every_case
def test_rows_of_no_weight_take_no_part(case):
    """Nor do they in the state; what they and their labels hold is of no matter."""
    rows = Rows(case)
    kept = torch.arange(12) % 3 > 0
    whole = rows.labels
    alone = case.build()
    leaf = rows.scores.clone().requires_grad_()
    expected = rows.call(alone, kept, leaf)
    (slope,) = torch.autograd.grad(expected, leaf)
    assert expected > 0
    marks = [(7.0, None), (torch.nan, -100), (7.0, -1), (7.0, 255), (7.0, torch.nan)]
    for (value, label), weight in itertools.product(marks, (kept.double(), kept)):
        loss = case.build()
        scores = rows.scores.masked_fill(~kept[:, None], value).requires_grad_()
        if label is not None:
            rows.labels = torch.where(kept, whole, label)
            rows.has_class = kept & (whole < CLASSES)
        found = rows.call(loss, scores=scores, weight=weight)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, scores)[0], slope)
        torch.testing.assert_close(state_of(loss), state_of(alone))


@every_case
def test_labels_of_any_kind(case):
    """Indices, and 0 and 1 of each dtype, are the same labels; a box needs one class a row."""
    rows = Rows(case)
    rows.labels[:4] = torch.arange(4)
    if case.details.use_sigmoid is None:
        return  # softmax for indices, sigmoid for 0 and 1 of a class
    if not case.details.use_sigmoid:
        with pytest.raises(ValueError, match='one class per sample'):
            rows.call(case.build(), labels=torch.zeros(12, CLASSES))
        return
    hot = one_hot(rows.labels, CLASSES + 1)[:, :CLASSES]
    if getattr(case.details, 'box_input', None) and case.details.requires_boxes:
        with pytest.raises(ValueError, match='one box a'):
            rows.call(case.build(), labels=hot)
        return
    rows.boxes = []
    expected = rows.call(case.build())
    for dtype in (torch.int32, torch.int64, torch.bool, torch.float32):
        assert torch.equal(rows.call(case.build(), labels=hot.to(dtype)), expected)


#: Their lists share a mean, an average, a prior or a margin: tests of their own.
SHARED = ('AUCMLoss', 'MAUCLoss', 'ROADMAPLoss', 'SOAPLoss', 'SOPRCLoss', 'StableAPLoss', 'SumLoss')
PER_CLASS = [x for x in RANKINGS if x.name not in SHARED]


@pytest.mark.parametrize('case', PER_CLASS, ids=str)
def test_per_class_is_a_list_for_each(case):
    """The classes that have a positive are put together; DR-Loss has a margin for the others."""
    rows = Rows(case)
    present = (0, 1, 2) if case.name == 'DRLoss' else (0, 2)
    rows.labels = torch.where(sum(rows.labels == c for c in present) > 0, rows.labels, CLASSES)
    rows.has_class = rows.labels < CLASSES
    settings = dict(case.settings, mode='per_class')
    found = rows.call(build(case.name, settings))
    settings['mode'] = 'flatten'
    each = []
    for c in present:
        column = Rows(case)
        column.scores = rows.scores[:, c]
        column.labels = (rows.labels == c).long()
        column.has_class = column.labels > 0
        each.append(column.call(build(case.name, settings)))
    torch.testing.assert_close(found, sum(each) / len(present))


@pytest.mark.parametrize('case', [x for x in RANKINGS if x.name != 'DRLoss'], ids=str)
def test_without_a_positive_there_is_no_loss(case):
    """Nor a gradient, nor a step of the state, whatever the scores are; DR-Loss has a margin."""
    rows = Rows(case)
    loss = case.build()
    before = state_of(loss)
    rows.has_class = torch.zeros(12, dtype=torch.bool)
    for number in (0, 1, 7):
        for fill in (None, -torch.inf):
            scores = rows.scores if fill is None else torch.full_like(rows.scores, fill)
            scores = scores.clone().requires_grad_()
            labels = torch.full((12,), CLASSES)
            value = rows.call(loss, slice(number), scores, labels)
            assert value == 0
            value.backward()
            assert not scores.grad.any()
    after = state_of(loss)
    assert before.keys() == after.keys()
    for name, x in before.items():
        assert torch.equal(x, after[name]), name


@every_loss
def test_bad_calls(case):
    """What heads of mmdet may pass; tensors that do not fit: test_invalid_tensors.py."""
    rows = Rows(case)
    loss = case.build()
    with pytest.raises(ValueError, match='reduction'):
        rows.call(loss, reduction_override='none')
    with pytest.raises(ValueError, match='from 0 to 11'):
        rows.call(loss, labels=torch.where(rows.labels == 1, 11, rows.labels))
    if case.name == 'SumLoss':  # its parts look
        return
    loss.num_columns = CLASSES + 1
    with pytest.raises(ValueError, match=f'num_classes={CLASSES + 1} but cls_score has'):
        rows.call(loss)


@every_loss
def test_choices_that_are_unknown(case):
    taken = inspect.signature(type(case.details)).parameters
    for option in {'mode', 'reduction', 'scope', 'activation'} & {*taken}:
        with pytest.raises(ValueError, match=f"{option}='x' is unknown"):
            build(case.name, {**case.settings, option: 'x'})
    if isinstance(case.details, HeadLoss):
        with pytest.raises(ValueError, match='use_sigmoid'):
            build(case.name, {**case.settings, 'use_sigmoid': False})
