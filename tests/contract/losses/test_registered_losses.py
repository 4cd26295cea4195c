"""What every registered loss keeps to, a new one by being registered."""

import re
from dataclasses import replace

import pytest
import torch
from subjects import (
    CLASSES,
    ROWS,
    build,
    call_rows,
    cases,
    kinds,
    loss_names,
    row_of,
    subject_of_case,
    weigh,
)

from mmrank import losses
from mmrank.testing import CHECKS, parametrize_with_checks

CASES = cases()
#: Checks that need batches of more samples than a case has.
NOT_HERE = ('memory', 'loops', 'metric')
#: Which kinds of losses refuse what, and how the message says it.
NO_PAIRS = (('pairs',), 'at least|not empty')
EVERY_KIND = ('rows', 'queries', 'views', 'pairs')
REFUSED = {
    'one_element': NO_PAIRS,
    'no_element': NO_PAIRS,
    # Twelve queries of twelve classes, where a loss knows three.
    'no_positives': (('queries',), 'classes'),
    'function_transform': (EVERY_KIND, r'torch.func.*Fix: loss.backward\(\)'),
    'second_derivative': (
        EVERY_KIND,
        'no second derivative.*create_graph=True|derivative for .* is not implemented',
    ),
}
every_loss = pytest.mark.parametrize('case', CASES, ids=str)


def assert_same(one, other, **tolerance):
    """Compare values and gradients."""
    torch.testing.assert_close(one[0], other[0], **tolerance)
    torch.testing.assert_close(one[1], other[1], **tolerance)


@pytest.mark.parametrize('name', loss_names())
def test_a_batch_is_known(name):
    for settings in row_of(name).settings:
        if name == 'PMLLoss':
            pytest.importorskip('pytorch_metric_learning')
        assert kinds(build(name, settings))


def test_the_table_names_only_registered_losses():
    assert ROWS.keys() <= {*loss_names()}


def test_every_exported_loss_is_in_the_table():
    """But for the bases, and what calls another loss with embeddings."""
    exported = {x for x in losses.__all__ if x.endswith('Loss')}
    bases = 'ClassCount Contrastive ErrorDriven Head Pointwise Ranking StatelessRanking Embedding'
    assert exported - {*loss_names()} == {f'{x}Loss' for x in bases.split()}


#: What the settings of a loss seldom change: slow for all but its first ones.
OF_THE_CLASS = (
    'autocast bfloat16 built_on_meta checkpointing computes_in_float32 deepcopy evaluation '
    'expanded function_transform grad_output inputs_untouched label_dtypes moved_to_another_dtype '
    'pickle same_twice second_derivative strided value_alone'
)


def rows():
    first = {(x.name, x.kind): x for x in reversed(CASES)}.values()
    names = [x for x in CHECKS if x not in NOT_HERE and not CHECKS[x].is_slow]
    for case in CASES:
        for row in parametrize_with_checks([subject_of_case(case)], checks=names).args[1]:
            is_slow = case not in first and row.values[1].name in OF_THE_CLASS.split()
            yield pytest.param(*row.values, id=row.id, marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize(('subject', 'check'), list(rows()))
def test_contract(subject, check):
    """The checks of mmrank.testing, stricter in what may be refused."""
    result = check(subject)
    if result.outcome == 'refused' and check.name not in subject.not_promised:
        kinds, message = REFUSED[check.name]
        assert subject.call.name in kinds
        assert re.search(message, result.message)


@every_loss
def test_the_weight_of_the_loss_scales_value_and_gradient(case):
    batch = case.batch()
    loss = case.build()
    value, gradients = batch.gradients(loss)
    assert value.dim() == 0
    assert all(x.any() for x in gradients)
    settings = dict(case.settings, loss_weight=2 * loss.loss_weight)
    twice = batch.gradients(build(case.name, settings))
    assert_same(twice, (2 * value, [2 * x for x in gradients]))


def of_many_classes(value):
    """Settings for 300 classes and samples instead of a few."""
    if isinstance(value, dict):
        many = dict(num_classes=300, num_samples=300, class_counts=[5] * 300)
        return {k: many.get(k, of_many_classes(v)) for k, v in value.items()}
    return value


@pytest.mark.parametrize(
    'case',
    # One of the settings of each loss. The sorter of rows takes 80 scores.
    [
        x
        for x in {(x.name, x.kind): x for x in reversed(CASES)}.values()
        if (x.name, x.kind) != ('SoDeepLoss', 'rows')
    ],
    ids=str,
)
def test_small_integers_are_the_numbers_they_are(case):
    """300 classes in uint8 or int8 are 44, so that class 44 would be background."""
    case = replace(case, settings=of_many_classes(case.settings))
    batch = case.batch()
    if case.kind != 'pairs':
        *boxes, labels, idx = batch.fixed if case.kind == 'rows' else (*batch.fixed, batch.fixed[0])
        labels, idx = labels + 42, (idx + 42).clamp(max=127)
        batch = replace(batch, fixed=(*boxes, labels, idx)[: len(batch.fixed)])
    if case.kind == 'rows':
        scores, *rest = batch.leaves
        g = torch.Generator().manual_seed(1)
        scores = torch.randn(len(scores), 300, generator=g, dtype=scores.dtype)
        batch = replace(batch, leaves=(scores, *rest))
    expected = batch.gradients(case.build())
    assert expected[0] != 0
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        fixed = [x if x.is_floating_point() else x.to(dtype) for x in batch.fixed]
        found = replace(batch, fixed=tuple(fixed)).gradients(case.build())
        assert torch.equal(found[0], expected[0])
        assert all(map(torch.equal, found[1], expected[1]))


@pytest.mark.parametrize(
    'case', [x for x in CASES if x.kind == 'rows' and x.details.use_sigmoid], ids=str
)
def test_ignored_scores_take_no_part(case):
    """As heads ask for classes that an image is not annotated for."""
    batch = case.batch()
    scores, *boxes = batch.leaves
    labels = batch.fixed[-2]
    g = torch.Generator().manual_seed(5)
    counted = torch.rand(scores.shape, generator=g) < 0.5
    rows = (labels < CLASSES).nonzero().squeeze(1)
    counted[rows, labels[rows]] = True
    assert not counted.all()
    value, gradients = weigh(batch, counted).gradients(case.build())
    assert value > 0
    assert not gradients[0][~counted].any()
    # So few scores need not change their ranks when they are perturbed.
    assert gradients[0].any() or case.name == 'BlackBoxAPLoss'
    noise = 3 * torch.randn(scores.shape, generator=g, dtype=scores.dtype)
    for values in (noise, torch.nan):
        moved = torch.where(counted, scores, values)
        other = replace(batch, leaves=(moved, *boxes))
        for weight in (counted, counted.float()):
            again = weigh(other, weight).gradients(case.build())
            assert_same(again, (value, gradients))
    if getattr(case.details, 'requires_boxes', False) and case.details.box_input:
        return  # it takes class indices alone
    hot = torch.nn.functional.one_hot(labels, CLASSES + 1)[:, :CLASSES]
    unknown = hot.masked_fill(~counted, -1)
    scores, _, idx, _ = case.rows()
    one, other = (call_rows(case.build(), scores, x, idx, weight=counted) for x in (hot, unknown))
    assert torch.equal(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
@every_loss
def test_moved_to_a_gpu(case):
    loss = subject_of_case(case).trained().cuda()
    batch = case.batch(seed=2).mapped(lambda x: x.cuda())
    value, gradients = batch.with_fixed([x.cuda() for x in batch.fixed]).gradients(loss)
    assert all(x.isfinite().all() for x in (value, *gradients))
