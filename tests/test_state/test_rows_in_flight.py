import copy
import io

import pytest
import sample_states
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow_link import SlowLink

from mmrank.state.rows_in_flight import overwritten

CPU = torch.device('cpu')
SIZE = 8


@pytest.fixture
def link(monkeypatch):
    return SlowLink(monkeypatch)


def temperature(storage='host', **kwargs):
    return sample_states.temperature(
        SIZE, beta0=0.7, eta=0.05, beta1=0.6, storage=storage, **kwargs
    )


def news_of(ids, seed):
    """The same for all rows of a sample, as update gives it."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(3, SIZE, generator=g)[:, ids]


BATCH = st.lists(st.integers(0, SIZE - 1), max_size=6)
STEP = st.fixed_dictionaries(
    dict(
        own=BATCH,
        others=BATCH,
        ahead=st.sampled_from(['no', 'same', 'equal', 'another']),
        brought=st.integers(0, 3),
        look=st.booleans(),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=8))
def test_a_slow_link_changes_nothing(link, steps):
    far = temperature()
    near = temperature('device')
    for seed, step in enumerate(steps):
        ids = torch.tensor(step['own'], dtype=torch.long)
        asked = {'same': ids, 'equal': ids.clone(), 'another': (ids + 1) % SIZE}.get(step['ahead'])
        if asked is not None:
            far.prefetch(asked, CPU)
        if step['look']:
            assert torch.equal(far.table, near.table)
        for arrival in link.on_way[: step['brought']]:
            link.bring(arrival)
        entries = [x.fetch(ids, CPU) for x in (far, near)]
        assert torch.equal(*entries)
        # What other ranks have seen is written, too.
        every = torch.tensor(step['own'] + step['others'], dtype=torch.long)
        for state in (far, near):
            state.store(every, news_of(every, seed))
    assert torch.equal(far.table, near.table)
    assert not far._rows.writes


def test_nobody_waits(link):
    """Not even where every write comes two steps late."""
    far, near = temperature(), temperature('device')
    for seed in range(20):
        ids = torch.arange(seed, seed + 3) % SIZE
        far.prefetch(ids, CPU)
        for state in (far, near):
            entries = state.fetch(ids, CPU)
            state.update(ids, entries, *news_of(ids, seed)[:2])
        if len(link.on_way) > 2:
            link.bring(link.on_way[0])
        assert len(far._rows.writes) <= 4
    assert link.waits == 0
    assert link.asked == 20
    assert torch.equal(far.table, near.table)
    assert link.waits == 2


@pytest.mark.parametrize(
    'ask',
    [
        lambda state: state.column('tau'),
        lambda state: state.state_dict()['tau'],
        lambda state: copy.deepcopy(state).table[1],
        lambda state: state.fetch(torch.arange(SIZE), CPU)[1],
        lambda state: state.store(torch.tensor([0]), torch.ones(3, 1)) or state.table[1],
    ],
)
def test_all_that_is_on_its_way_is_seen(link, ask):
    state = temperature()
    state.store(torch.tensor([4, 2]), torch.tensor([[1.0, 2.0], [0.3, 0.4], [5.0, 6.0]]))
    state.prefetch(torch.tensor([4]), CPU)
    assert ask(state)[[4, 2]].tolist() == pytest.approx([0.3, 0.4])
    # Whoever waited did so once.
    state.flush()
    waits = link.waits
    assert ask(state)[[4, 2]].tolist() == pytest.approx([0.3, 0.4])
    state.flush()
    assert link.waits - waits <= 1
    assert not state._rows.writes


def test_a_look_up_does_not_outlive_what_it_was_read_from(link):
    state = temperature()
    ids = torch.tensor([1])
    state.prefetch(ids, CPU)
    state.column('tau').fill_(0.25)
    assert state.fetch(ids, CPU)[1] == 0.25
    state.prefetch(ids, CPU)
    state.store(ids, torch.zeros(3, 1))
    other = temperature()
    other.column('tau').fill_(0.75)
    state.load_state_dict(copy.deepcopy(other.state_dict()))
    assert state.fetch(ids, CPU)[1] == 0.75
    assert torch.equal(state.table, other.table)


def test_saving_waits(link):
    state = temperature()
    state.store(torch.tensor([3]), torch.full((3, 1), 0.5))
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)['tau'][3] == 0.5
    assert link.waits == 1


def test_bad_indices_are_refused_before_the_network_runs(link):
    with pytest.raises(ValueError, match='indices from 0 to 8'):
        temperature().prefetch(torch.tensor([0, SIZE]), CPU)
    with pytest.raises(TypeError, match='integers'):
        temperature().prefetch(torch.tensor([0.5]), CPU)


def test_state_beside_the_model_is_not_asked_ahead(link):
    temperature('device').prefetch(torch.tensor([0]), CPU)
    assert link.asked == 0


def test_newer_entries_take_the_place():
    entries = torch.arange(8.0).view(2, 4)
    ids = torch.tensor([5, 0, 9, 5])
    new = torch.tensor([[-1.0, -2.0, -1.0], [-3.0, -4.0, -3.0]])
    given = overwritten(entries, ids, torch.tensor([5, 1, 5]), new)
    assert given.tolist() == [[-1, 1, 2, -1], [-3, 5, 6, -3]]
    none = torch.zeros(0, dtype=torch.long)
    assert overwritten(entries, ids, none, new[:, :0]) is entries
