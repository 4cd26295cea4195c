"""The rivals of stable AP under their common interface; SoDeep's sorter and its ranks."""

import copy
from pathlib import Path

import pytest
import torch
from subjects import call_rows, one_vs_rest, rows_with_background
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmrank.errors import UserError
from mmrank.functional import alrp_loss, ap_loss, dr_loss, rank_sort_loss
from mmrank.losses import (
    ALRPLoss,
    APLoss,
    DRLoss,
    RankingLoss,
    RankSorter,
    RankSortLoss,
    SoDeepLoss,
)
from mmrank.state import SelfBalance
from train_sorter import made_up_lists, rank_error, train_sorter

CLASSES = 3
#: Each loss, and its value of one list from ``mmrank.functional``.
LOSSES = {
    'APLoss': (APLoss(quality=0), lambda s, labels, _: ap_loss(s, labels)),
    'DRLoss': (DRLoss(), lambda s, labels, _: dr_loss(s, labels)),
    'RankSortLoss': (RankSortLoss(), lambda s, _, values: sum(rank_sort_loss(s, values))),
    'ALRPLoss': (ALRPLoss(), lambda *x: alrp_loss(*x)[0] + 50 * alrp_loss(*x)[1]),
}


def batch(n=60, seed=0):
    """Logits, targets (the last class index = background), box numbers."""
    logits, target = rows_with_background(n, CLASSES, seed)
    g = torch.Generator().manual_seed(seed)
    boxes = torch.rand(int((target < CLASSES).sum()), generator=g, dtype=torch.float64)
    return logits, target, boxes


def as_lists(logits, target, boxes):
    """One-vs-rest labels and the boxes of the positives, flattened."""
    labels = one_vs_rest(logits, target).double()
    values = labels.clone()
    values[labels > 0] = boxes
    return labels.flatten(), values.flatten()


@pytest.mark.parametrize('name', LOSSES)
def test_flatten_is_one_list_of_all_classes(name):
    logits, target, boxes = batch()
    loss, of_list = LOSSES[name]
    loss = copy.deepcopy(loss)
    found = call_rows(loss, logits, target, None, boxes)
    expected = of_list(logits.flatten(), *as_lists(logits, target, boxes))
    torch.testing.assert_close(found, expected)
    if name != 'DRLoss':  # the others know where the positives are
        mean = logits[one_vs_rest(logits, target)].mean()
        torch.testing.assert_close(loss.logit_centre()[0].double(), mean)


def test_alrp_trains_the_boxes_by_their_rank():
    logits, target, boxes = batch()
    boxes.requires_grad_()
    ALRPLoss()(logits, target, box_loss=boxes)['loss_bbox'].backward()
    labels, other = as_lists(logits, target, boxes.detach())
    other.requires_grad_()
    (50 * alrp_loss(logits.flatten(), labels, other)[1]).backward()
    torch.testing.assert_close(boxes.grad, other.grad[labels > 0])
    assert (boxes.grad > 0).all()


def test_sorting_can_be_weighted():
    logits, target, boxes = batch()
    values = [RankSortLoss(sort_weight=w)(logits, target, quality=boxes) for w in (0.0, 1.0, 3.0)]
    torch.testing.assert_close(values[2] - values[0], 3 * (values[1] - values[0]))
    assert values[1] > values[0]


def test_self_balance_is_the_ratio_of_the_period_before():
    state = SelfBalance(period=2)
    pairs = [(0.8, 0.1), (0.6, 0.3), (1.0, 1.0), (3.0, 1.0), (0.0, 1.0)]
    got = [float(state.update(torch.tensor(c), torch.tensor(b))) for c, b in pairs]
    first, second = (0.8 + 0.6 + 0.4) / 0.4, (4.0 + 2.0) / 2.0
    assert got == pytest.approx([50, 50, first, first, second])


def test_no_boxes_and_bad_numbers_do_not_count():
    state = SelfBalance(period=1)
    one, zero = torch.tensor(1.0), torch.tensor(0.0)
    state.update(one, zero)
    state.update(torch.tensor(torch.nan), one)
    assert state.ratio == 50
    state.update(one, one)
    assert state.ratio == 2


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float64])
def test_values_of_boxes_take_the_dtype_of_the_scores(dtype):
    """Ranks gather them: one without boxes must not differ in the dtype."""

    class Seen(RankingLoss):
        box_input = 'quality'

        def list_losses(self, lists):
            self.dtype = lists.values.dtype
            return lists.scores.sum(1)

    logits, target, boxes = batch()
    loss = Seen()
    loss(logits.float(), target, quality=boxes.to(dtype))
    assert loss.dtype == torch.float32


ROOT = Path(__file__).parents[3]
LENGTH = 12


@pytest.fixture(scope='module')
def sorter():
    """Trained for a second."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sorter = RankSorter(LENGTH, 'pairs', hidden=8, layers=2)
        for _ in train_sorter(sorter, steps=200, batch_size=64, learning_rate=0.02):
            pass
    return sorter


@pytest.fixture
def loss(sorter, tmp_path):
    sorter.save(tmp_path / 'sorter.pth', 0.1)
    return SoDeepLoss(tmp_path / 'sorter.pth')


def test_sorter_learned_the_exact_ranks(sorter):
    generator = torch.Generator().manual_seed(9)
    lists = made_up_lists(200, LENGTH, generator)
    assert rank_error(sorter, lists) < 0.2
    untrained = RankSorter(LENGTH, 'pairs', hidden=8, layers=2)
    assert rank_error(untrained, lists) > 2
    # Also on scores that it was not trained on.
    cubes = torch.randn(50, LENGTH, generator=generator) ** 3
    assert rank_error(sorter, cubes) < 0.7


def mean_rank(scores, is_positive):
    """Mean rank of the positives over n, by comparing all scores."""
    ranks = (scores[:, None] <= scores).sum(1).double()
    return float(ranks[is_positive].mean() / LENGTH)


@pytest.mark.parametrize('count', [LENGTH, 7])
def test_value_is_near_the_exact_mean_rank(loss, count):
    g = torch.Generator().manual_seed(count)
    scores = (2 * torch.rand(count, generator=g) - 1).double()
    labels = (torch.rand(count, generator=g) < 0.4).float()
    labels[0] = 1
    got = loss(scores[:, None], labels[:, None])
    expected = mean_rank(scores, labels.bool())
    assert float(got) == pytest.approx(expected, abs=0.03)
    # In ranks, without the entries that fill the list up.
    assert loss.diagnostics['rank_error'] < 0.5


@pytest.mark.parametrize('kind', ['lstm', 'pairs'])
def test_order_of_the_batch_does_not_matter(kind, tmp_path):
    """Nor does it for an LSTM, whose output depends on the order, or for ties."""
    path = tmp_path / 'sorter.pth'
    torch.manual_seed(0)
    RankSorter(9, kind, hidden=3, layers=1).save(path, 0.0)
    loss = SoDeepLoss(path)
    labels = torch.tensor([[1.0], [0], [1], [0], [0], [1], [0]])
    scores = torch.randn(7, 1, dtype=torch.float64)
    for x in (scores, scores.round()):
        values = [loss(x[order], labels[order]) for order in map(torch.randperm, [7] * 20)]
        torch.testing.assert_close(torch.stack(values), values[0].expand(20))


def test_lists_beyond_the_sorter_and_other_files_are_refused(loss, tmp_path):
    with pytest.raises(UserError, match='13 scores.* up to 12. Fix: train'):
        loss(torch.randn(13, 1), torch.ones(13, 1))
    with pytest.raises(UserError, match='is not a file. Fix: train one'):
        SoDeepLoss(tmp_path / 'absent.pth')
    torch.save({'weight': torch.zeros(2)}, tmp_path / 'other.pth')
    with pytest.raises(UserError, match='is not a sorter.*Fix: train one'):
        SoDeepLoss(tmp_path / 'other.pth')
    with pytest.raises(ValueError, match='kind='):
        RankSorter(4, 'forest')


def test_tool_trains_what_the_loss_takes(run_script, tmp_path):
    out = tmp_path / 'sorter.pth'
    plan = ROOT / 'configs/sodeep/sorter_small.yaml'
    short = ('--length', '6', '--steps', '20')
    status, text, _ = run_script(ROOT / 'tools/misc/train_sorter.py', plan, out, *short)
    assert status == 0
    assert '20 of 20 steps' in text
    assert SoDeepLoss(out).sorter.length == 6
    (tmp_path / 'plan.yaml').write_text('length: 6')
    status, _, error = run_script(ROOT / 'tools/misc/train_sorter.py', tmp_path / 'plan.yaml', out)
    assert (status, 'Fix: begin with' in error) == (2, True)


def test_a_moving_average_of_the_model_keeps_the_order(loss):
    """Of all buffers: integers that never change would be rounded down. Nothing is learnt."""
    assert not any(p.requires_grad for p in loss.parameters())
    average = AveragedModel(loss, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    scores, labels = torch.randn(LENGTH, generator=torch.manual_seed(1)), torch.arange(LENGTH) < 3
    for _ in range(5):
        average.update_parameters(loss)
    assert torch.equal(average(scores, labels), loss(scores, labels))
    assert loss.half().sorter.order.dtype == torch.float64
