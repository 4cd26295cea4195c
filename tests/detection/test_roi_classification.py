"""The hooks of mmdet's box heads."""

import pytest
import torch

from mmrank.losses import DRLoss, StableAPLoss

SCORES = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 1.0, 4.0], [0.0, 0.0, -9.0]])
LABELS = torch.tensor([0, 1, 3])


def test_a_head_needs_no_background_channel():
    assert StableAPLoss().get_cls_channels(80) == 80
    assert StableAPLoss(num_classes=80).get_cls_channels(80) == 80
    with pytest.raises(ValueError, match='num_classes=3 of the loss.*80'):
        StableAPLoss(num_classes=3).get_cls_channels(80)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_activation_shows_the_mean_positive_score_as_a_half(dtype):
    loss = StableAPLoss()
    loss.mean_positive.mean.fill_(2.0)
    loss.get_cls_channels(3)
    scores = loss.get_activation(SCORES.to(dtype))
    assert scores.dtype == torch.float32
    assert scores.shape == (3, 4)
    assert scores[0, 0] == 0.5
    torch.testing.assert_close(scores[:, :3], (SCORES - 2).sigmoid())
    torch.testing.assert_close(scores[:, 3], 1 - scores[:, :3].amax(1))
    assert scores.min() >= 0
    assert scores.max() <= 1
    assert loss.get_activation(SCORES[:0]).shape == (0, 4)


def test_each_class_has_its_own_centre():
    loss = StableAPLoss(num_classes=3, mode='per_class')
    loss.mean_positive.mean.copy_(torch.tensor([2.0, 1.0, 5.0]))
    loss.get_cls_channels(3)
    scores = loss.get_activation(SCORES)
    assert (scores[0, 0], scores[1, 1]) == (0.5, 0.5)
    with pytest.raises(ValueError, match='4 columns.*num_classes=3'):
        loss.get_activation(torch.zeros(2, 4))
    # By the scores that are shown: the raw 4.0 of row 1 is below its centre.
    assert loss.get_accuracy(SCORES, LABELS)['acc_classes'] == 100


def test_accuracy_is_that_of_the_boxes_with_an_object():
    loss = StableAPLoss()
    accuracy = loss.get_accuracy(SCORES, LABELS)
    assert list(accuracy) == ['acc_classes']
    assert accuracy['acc_classes'] == 50
    right = torch.tensor([0, 2, 3])
    assert loss.get_accuracy(SCORES, right)['acc_classes'] == 100
    empty = torch.full((3,), 3)
    assert loss.get_accuracy(SCORES, empty)['acc_classes'] == 0
    # A loss without a centre shows plain probabilities.
    loss = DRLoss()
    loss.get_cls_channels(3)
    assert torch.equal(loss.get_activation(SCORES)[:, :3], SCORES.sigmoid())
