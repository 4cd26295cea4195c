"""The bucketed form of AP-Loss against the exact sums."""

import pytest
import torch

from bucketed_ap import bucketed_ap_loss, exact_ap_loss, make_logits


@pytest.mark.parametrize('delta', [1e-6, 0.5])
def test_the_bucketed_loss_is_the_exact_one_of_negatives_at_the_mean_of_their_bucket(delta):
    logits, is_positive = make_logits(300, 20)
    logits = logits.double()
    loss, update = bucketed_ap_loss(logits, is_positive, delta)
    positives = logits[is_positive]
    bucket = (logits[:, None] < positives).sum(1)
    kept = ~is_positive & (logits >= positives.min() - delta)
    moved = logits.clone()
    for number in bucket[kept].unique():
        members = kept & (bucket == number)
        moved[members] = logits[members].mean()
    exact, expected = exact_ap_loss(moved, is_positive, delta)
    torch.testing.assert_close(loss, exact)
    torch.testing.assert_close(update, expected)
    # Between the scores a step sees no difference.
    if delta < 0.5:
        torch.testing.assert_close(update, exact_ap_loss(logits, is_positive, delta)[1])
