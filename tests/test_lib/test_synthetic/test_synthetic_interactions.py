"""Made-up interactions: what is promised of them."""

import numpy as np
import pytest

from lib.synthetic.interactions import InteractionsSpec, make_interactions


@pytest.mark.parametrize('seed', [0, 1])
@pytest.mark.parametrize('shape', [(50, 30), (9, 9)])
def test_every_entity_is_in_training(shape, seed):
    spec = InteractionsSpec(*shape, per_user=4, seed=seed)
    train, held_out = make_interactions(spec)
    for i, size in enumerate(shape):
        assert np.unique(train[:, i]).tolist() == list(range(size))
    both = {tuple(x) for x in np.concatenate([train, held_out])}
    assert len(both) == len(train) + len(held_out)
    assert 4 * shape[0] <= len(both) <= 5 * shape[0]
    assert len(held_out)


def test_the_seed_says_it_all():
    one, same, other = (make_interactions(InteractionsSpec(seed=x))[0] for x in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_popularity_has_a_long_tail():
    train, _ = make_interactions(InteractionsSpec())
    counts = np.sort(np.bincount(train[:, 1]))
    # A tenth of the items has more than the lower half.
    assert counts[-10:].sum() > 1.5 * counts[:50].sum()
    assert counts[-1] > 5 * np.median(counts)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(num_users=1), 'num_users must be'),
        (dict(per_user=60), 'at most half'),
        (dict(held_out=1), 'held_out must be'),
        (dict(num_items=300), 'must not exceed'),
    ],
)
def test_bad_numbers(change, message):
    with pytest.raises(ValueError, match=message):
        InteractionsSpec(**change)
