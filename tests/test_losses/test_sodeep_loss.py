"""SoDeep: a sorter learns to rank, and the loss takes its ranks."""

from pathlib import Path

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmrank.errors import UserError
from mmrank.losses import RankSorter, SoDeepLoss
from train_sorter import made_up_lists, rank_error, train_sorter

ROOT = Path(__file__).parents[2]
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
    """Nor does it for an LSTM, whose output depends on the order."""
    path = tmp_path / 'sorter.pth'
    torch.manual_seed(0)
    RankSorter(9, kind, hidden=3, layers=1).save(path, 0.0)
    loss = SoDeepLoss(path)
    scores = torch.randn(7, 1, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0], [0], [1], [0], [0], [1], [0]])
    order = torch.randperm(7)
    value = loss(scores, labels)
    torch.testing.assert_close(loss(scores[order], labels[order]), value)
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), scores)
    tied = scores.detach().round()
    values = [loss(tied[x], labels[x]) for x in map(torch.randperm, [7] * 20)]
    torch.testing.assert_close(torch.stack(values), values[0].expand(20))


def test_weights_are_frozen_and_saved(loss, tmp_path):
    assert not any(p.requires_grad for p in loss.parameters())
    other = SoDeepLoss(tmp_path / 'sorter.pth')
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(loss.state_dict())
    scores, labels = torch.randn(6, 1), torch.tensor([[1.0]] * 2 + [[0.0]] * 4)
    assert torch.equal(loss(scores, labels), other(scores, labels))


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
    status, text, _ = run_script(
        ROOT / 'tools/misc/train_sorter.py',
        ROOT / 'configs/sodeep/sorter_small.yaml',
        out,
        *('--length', '6', '--steps', '20'),
    )
    assert status == 0
    assert '20 of 20 steps' in text
    assert SoDeepLoss(out).sorter.length == 6
    (tmp_path / 'plan.yaml').write_text('length: 6')
    status, _, error = run_script(ROOT / 'tools/misc/train_sorter.py', tmp_path / 'plan.yaml', out)
    assert (status, 'Fix: begin with' in error) == (2, True)


def test_a_moving_average_of_the_model_keeps_the_order(loss):
    """Of all buffers: integers that never change would be rounded down."""
    average = AveragedModel(loss, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    scores, labels = torch.randn(LENGTH, generator=torch.manual_seed(1)), torch.arange(LENGTH) < 3
    for _ in range(5):
        average.update_parameters(loss)
    other = RankSorter(LENGTH, 'pairs', hidden=8, layers=2)
    for mean, own in zip(other.state_dict().values(), loss.sorter.state_dict().values()):
        mean.copy_(own)
        for _ in range(5):  # as ModelEmaV2 of timm
            mean.copy_(0.9 * mean + 0.1 * own)
    expected = loss(scores, labels)
    assert torch.equal(average(scores, labels), expected)
    loss.sorter = other.requires_grad_(False)
    torch.testing.assert_close(loss(scores, labels), expected)
    assert loss.half().sorter.order.dtype == torch.float64
