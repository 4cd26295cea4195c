"""Rankings as lists of one call, each with a loss and a state of its own."""

import copy

import pytest
import torch

from mmrank.losses import APLoss, StableAPLoss
from mmrank.losses.ranking.separate_rankings import can_be_separate, separate_rankings

CLASSES, ROWS, NUMBER = 4, 30, 3
SETTINGS = [
    {},
    dict(
        rho='batch',
        mean_mode='off',
        reduction='sum',
        activation='sigmoid',
        score_range=(0, 1),
        loss_weight=2.0,
    ),
    dict(rho=3.0, weights='printed'),
    dict(mean_mode=0.5, scope='local'),
    dict(quality=0.9),
    dict(tau='auto'),
]


def calls(seed, per_class=False, positives=(3, 1, 5)):
    """Scores, targets and weights, with another number of positives each."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for number in positives:
        scores = 3 * torch.randn(ROWS, CLASSES, generator=g).double()
        target = torch.full((ROWS,), CLASSES)
        index = torch.randperm(ROWS, generator=g)[:number]
        target[index] = torch.randint(CLASSES, (number,), generator=g)
        shape = (ROWS, CLASSES) if per_class else (ROWS,)
        weight = torch.rand(shape, generator=g) > 0.1
        weight[index] = True
        made.append([scores.requires_grad_(), target, weight.float()])
    return made


#: Seed, whether the weights are of classes, and positives.
BATCHES = [
    *((seed, seed == 1) for seed in range(3)),
    (3, False, (0, 2, 0)),
    (4, False, (0, 0, 0)),
    (5, False, (9, 9, 9)),
]


@pytest.mark.parametrize('settings', SETTINGS)
def test_equal_to_one_call_for_each(settings):
    """Values, gradients, state and diagnostics of a few batches."""
    loss = StableAPLoss(num_classes=CLASSES, **settings)
    together, alone = ([copy.deepcopy(loss) for _ in range(NUMBER)] for _ in range(2))
    assert can_be_separate(together)
    for number, batch in enumerate(BATCHES):
        for one in (*together, *alone):
            one.train(number != 2)
        ours, theirs = calls(*batch), calls(*batch)
        boxes = [torch.linspace(0, 1, int((x < CLASSES).sum())) for _, x, _ in ours]
        taken = boxes if loss.box_input else None
        values = separate_rankings(together, ours, taken)
        more = [dict(quality=x) if loss.box_input else {} for x in boxes]
        expected = [one(*call, **box) for one, call, box in zip(alone, theirs, more)]
        for found in (values, expected):
            sum(w * x for w, x in enumerate(found, 1)).backward()
        for i in range(NUMBER):
            torch.testing.assert_close(values[i], expected[i], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(ours[i][0].grad, theirs[i][0].grad, rtol=1e-11, atol=1e-12)
            # Float32, of a number that is equal to 1e-12.
            close = dict(rtol=2e-7, atol=1e-12, check_dtype=False)
            torch.testing.assert_close(together[i].diagnostics, alone[i].diagnostics, **close)
            torch.testing.assert_close(together[i].state_dict(), alone[i].state_dict(), **close)
    # A state of its own each.
    if 'mean_mode' not in settings:
        means = {one.mean_positive.mean.item() for one in together}
        assert len(means) == NUMBER


class _Other(StableAPLoss):
    """A loss of the user, with a computation of its own."""

    def list_losses(self, lists):
        return super().list_losses(lists) + 1


def test_losses_that_have_to_be_called():
    watched = StableAPLoss()
    watched.register_forward_hook(lambda *_: None)
    for loss in (
        APLoss(),
        watched,
        _Other(),
        StableAPLoss(mean_mode='exact'),
        StableAPLoss(num_classes=CLASSES, mode='per_class'),
    ):
        assert not can_be_separate([StableAPLoss(), loss])
