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


@pytest.mark.parametrize('settings', SETTINGS)
def test_equal_to_one_call_for_each(settings):
    """Values, gradients, state and diagnostics of a few batches."""
    loss = StableAPLoss(num_classes=CLASSES, **settings)
    together = [copy.deepcopy(loss) for _ in range(NUMBER)]
    alone = copy.deepcopy(together)
    assert can_be_separate(together)
    batches = [
        *((seed, seed == 1, (3, 1, 5)) for seed in range(3)),
        (3, False, (0, 2, 0)),
        (4, False, (0, 0, 0)),
        (5, False, (9, 9, 9)),
    ]
    for number, batch in enumerate(batches):
        for one in (*together, *alone):
            one.train(number != 2)
        ours, theirs = calls(*batch), calls(*batch)
        boxes = [
            torch.rand(int((target < CLASSES).sum()), generator=torch.Generator().manual_seed(i))
            for i, (_, target, _) in enumerate(ours)
        ]
        taken = boxes if loss.box_input else None
        values = separate_rankings(together, ours, taken)
        more = [dict(quality=x) if loss.box_input else {} for x in boxes]
        expected = [one(*call, **box) for one, call, box in zip(alone, theirs, more)]
        weights = torch.arange(1, NUMBER + 1)
        for found in (values, expected):
            sum(w * x for w, x in zip(weights, found)).backward()
        for i in range(NUMBER):
            torch.testing.assert_close(values[i], expected[i], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(ours[i][0].grad, theirs[i][0].grad, rtol=1e-11, atol=1e-12)
            assert together[i].diagnostics.keys() == alone[i].diagnostics.keys()
            for key, noted in alone[i].diagnostics.items():
                torch.testing.assert_close(
                    together[i].diagnostics[key].double(), noted.double(), rtol=2e-7, atol=1e-12
                )
            state = together[i].state_dict()
            for key, kept in alone[i].state_dict().items():
                # Float32, of a number that is equal to 1e-12.
                torch.testing.assert_close(state[key], kept, rtol=2e-7, atol=0, msg=key)
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
