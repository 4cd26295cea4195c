import pytest
import torch

from mmrank.functional import OneSidedHuber
from mmrank.losses.pairs.rank_weights import mean_one, practical_weight, smoothed_rank


def test_practical_weight():
    x = torch.linspace(0, 1, 11, dtype=torch.float64)
    weight = practical_weight(x, a=0.1, t=2.0)
    assert weight[0].item() == pytest.approx(121.0)
    assert weight[-1].item() == pytest.approx(1.0)
    assert (weight.diff() < 0).all()
    assert (practical_weight(x, t=0.0) == 1).all()


def test_smoothed_rank_is_clamped_and_orders_by_score():
    pos = torch.tensor([-1e4, -1.0, 0.0, 0.4, 2.0, 1e4])
    rank = smoothed_rank(pos, 0.5, OneSidedHuber(1.0), bound=21.0)
    assert rank[0] == 1
    assert (rank[-2:] == 0).all()
    assert (rank.diff() <= 0).all()
    assert rank[2].item() == pytest.approx(2 / 21)


def test_mean_one_divides_each_list_by_its_own_mean():
    weight = torch.tensor([[121.0, 60.0, 0.0], [3.0, 0.0, 0.0], [0.0] * 3])
    mask = weight > 0
    got = mean_one(weight, mask)
    assert got[0].tolist() == pytest.approx([121 / 90.5, 60 / 90.5, 0])
    assert got[1].tolist() == [1, 0, 0]
    assert got[2].tolist() == [0, 0, 0]
    torch.testing.assert_close(mean_one(weight[:1, :2]), got[:1, :2])
