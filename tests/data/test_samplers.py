"""What every registered sampler keeps to, and what the batches of single ones hold, bit for bit."""

import random
from collections import Counter
from itertools import chain, islice
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
import torch
from gloo_processes import run_on_ranks
from hypothesis import given
from hypothesis import strategies as st
from labelled import Labels
from mmengine.registry import DATA_SAMPLERS as ROOT
from torch.utils.data import DataLoader, Sampler

from mmrank.datasets import InteractionDataset, batch_stream
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.samplers import InBatchPairSampler, PKSampler, PositiveRateSampler
from mmrank.errors import UserError
from mmrank.registry import DATA_SAMPLERS


def pairs(sampling):
    rows, cols = np.divmod(np.sort(np.arange(62) * 37 % 143), 11)
    names = [str(i) for i in range(13)]
    return SimpleNamespace(
        sampling=sampling, interactions=Interactions(rows, cols, names, names[:11])
    )


#: Data set and settings of each; 2, 3 and 4 ranks divide a batch.
CASES = {
    'PKSampler': (Labels([i * 5 % 13 for i in range(91)]), dict(batch_size=24, num_per_class=2)),
    'PositiveRateSampler': (
        Labels([int(i % 6 == 0) for i in range(60)], 'ab'),
        dict(batch_size=12, positive_rate=5 / 12),
    ),
    'InBatchPairSampler': (pairs('in_batch'), dict(batch_size=12)),
    'InBatchPairSampler sogram': (pairs('sogram'), dict(batch_size=12)),
    'InBatchPairSampler uniform': (pairs('in_batch'), dict(batch_size=12, num_uniform=8)),
    'ClassPairSampler': (Labels([i % 7 for i in range(60)]), dict(batch_size=12)),
}
#: CRC-32 of the first 300 indices of seed 7: another one breaks the resume of older trainings.
GOLDEN = {
    'PKSampler': 3111137220,
    'PositiveRateSampler': 472084449,
    'InBatchPairSampler': 1276735371,
    'InBatchPairSampler sogram': 190916055,
    'InBatchPairSampler uniform': 725421892,
    'ClassPairSampler': 3941089202,
}
every_sampler = pytest.mark.parametrize('name', CASES)


def build(name, **other):
    dataset, settings = CASES[name]
    cfg = dict(type=f'mmrank.{name.split()[0]}', dataset=dataset, seed=7, **settings)
    return ROOT.build({**cfg, **other})


def on_rank(monkeypatch, rank, world_size):
    monkeypatch.setattr(batch_stream, 'get_dist_info', lambda: (rank, world_size))


def epochs(sampler, count):
    found = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        found.append(list(sampler))
    return found


def test_every_registered_sampler_is_here():
    registered = DATA_SAMPLERS.module_dict.items()
    # Those of tools/research are of the papers alone.
    own = {name for name, made in registered if made.__module__.startswith('mmrank.')}
    assert {name.split()[0] for name in CASES} == own


def joined(name, shares):
    """The batch of one rank, put together from the (share,) indices of several."""
    if name in ('InBatchPairSampler sogram', 'ClassPairSampler'):  # two samples, or two sides
        halves = [np.split(np.array(share), 2) for share in shares]
        return list(chain(*(h[0] for h in halves), *(h[1] for h in halves)))
    if name == 'InBatchPairSampler uniform':
        parts = [np.split(np.array(share), [len(share) * 12 // 20]) for share in shares]
        return list(chain(*(p[0] for p in parts), *(p[1] for p in parts)))
    if 'Positive' in name:  # the ranks take turns
        return list(np.array(shares).T.ravel())
    return list(chain(*shares))


@every_sampler
@pytest.mark.parametrize('world_size', [1, 2, 4])
def test_ranks_share_out_the_same_batches(monkeypatch, name, world_size):
    alone = build(name, infinite=True)
    whole = [alone.rank_batch(i).tolist() for i in range(12)]
    ranks = []
    for rank in range(world_size):
        on_rank(monkeypatch, rank, world_size)
        sampler = build(name, infinite=True)
        drawn = list(islice(iter(sampler), 12 * sampler.share))
        ranks.append(np.reshape(drawn, (12, sampler.share)))
    for number, batch in enumerate(whole):
        assert joined(name, [rank[number] for rank in ranks]) == batch
    # So many indices for each rank, in every epoch.
    assert len(build(name)) == alone.num_batches * ranks[0].shape[1]


class Dealer(Sampler):
    """As Lightning's and accelerate's: every W-th of what another one yields."""

    def __init__(self, sampler, num_replicas):
        self.sampler, self.num_replicas = sampler, num_replicas

    def __iter__(self):
        return iter(list(self.sampler)[:: self.num_replicas])


@every_sampler
def test_a_second_dealer_is_refused(name):
    with pytest.raises(UserError, match='Dealer deals .* to 2 processes.*use_distributed_sampler'):
        list(DataLoader(range(10_000), sampler=Dealer(build(name), 2)))
    assert len(list(Dealer(build(name), 1))) == len(build(name))


@every_sampler
@pytest.mark.parametrize('infinite', [False, True])
def test_epochs_are_pieces_of_the_stream_and_a_loop_of_ones_own_goes_on(name, infinite):
    sampler = build(name, infinite=infinite)
    length = len(sampler)
    assert length == sampler.num_batches * sampler.share
    found = [list(islice(iter(sampler), length)) for _ in range(3)]
    assert found[0] != found[1] != found[2]
    assert found == epochs(build(name), 3)
    assert list(chain(*found)) == list(islice(iter(build(name, infinite=True)), 3 * length))
    if name == 'InBatchPairSampler':
        assert all(len(set(epoch)) == length for epoch in found), 'an item comes twice'
    # A loop that ends within an epoch does not see its batches again.
    assert list(islice(iter(sampler), 1)) == epochs(build(name), 4)[3][:1]
    sampler.set_epoch(1)
    assert infinite or list(sampler) == found[1]


@every_sampler
@pytest.mark.parametrize(('rank', 'world_size'), [(0, 1), (1, 2)])
def test_skip_leads_to_the_same_continuation(monkeypatch, name, rank, world_size):
    on_rank(monkeypatch, rank, world_size)
    sampler = build(name)
    length = len(sampler)
    stream = list(islice(iter(build(name, infinite=True)), 6 * length))
    for skipped in (0, 1, 7, 12, length - 1, length, length + 5, 2 * length + 3):
        endless = build(name, infinite=True)
        endless.skip(skipped)
        assert list(islice(iter(endless), 2 * length)) == stream[skipped:][: 2 * length]
        # mmengine counts the epochs of an iteration-based loop from the resume.
        resumed = build(name)
        resumed.skip(skipped)
        first, second = epochs(resumed, 2)
        assert len(first) == length - skipped % length
        assert len(second) == length
        assert first + second == stream[skipped:][: len(first) + length]


@every_sampler
def test_seed_decides_and_global_generators_are_left_alone(name):
    random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first = epochs(build(name), 2)
    assert epochs(build(name), 2) == first
    other = build(name, seed=8)
    other.rank_batch(0)
    other.seed = 7  # as a resumed training sets it
    assert epochs(other, 2) == first
    assert epochs(build(name, seed=8), 2) != first
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after


@every_sampler
def test_the_stream_stays_what_it_is(name):
    drawn = np.fromiter(islice(iter(build(name, infinite=True)), 300), dtype='<i8')
    assert crc32(drawn.tobytes()) == GOLDEN[name]


@every_sampler
def test_data_loader_keeps_the_batches(name):
    sampler = build(name)
    items = range(10_000)
    for workers, drop_last in ((0, False), (0, True), (1, False)):
        loader = DataLoader(
            items, sampler.share, sampler=sampler, num_workers=workers, drop_last=drop_last
        )
        batch_stream.check_loader(loader)
        sampler.set_epoch(0)
        assert len(loader) == sampler.num_batches
        assert [x.tolist() for x in loader] == [
            sampler.rank_batch(i).tolist() for i in range(sampler.num_batches)
        ]


@every_sampler
def test_refused_sizes(monkeypatch, name):
    for value in (0, -12):
        with pytest.raises(UserError, match=f'batch_size={value} .*Fix: a positive multiple of'):
            build(name, batch_size=value)
    on_rank(monkeypatch, 0, 5)
    with pytest.raises(UserError, match=r'multiple of (5|10), for 5 ranks'):
        build(name)


#: Data sets that samplers by class cannot draw from, and what is said.
UNLABELLED = [
    (Labels([0, 1, -1, 1] * 9, 'ab'), 'item 2 of Labels has gt_label=.*-1'),
    (Labels([0, 1, 0.5, 1] * 9, 'ab'), 'item 2 of Labels has gt_label=.*0.5'),
    (Labels([0, 1, float('nan'), 1] * 9, 'ab'), 'item 2 of Labels has gt_label=.*nan'),
    (Labels([True, False] * 18, 'ab'), 'item 0 of Labels has gt_label=.*True'),
    (Labels(['a', 'b'] * 18, 'ab'), "item 0 of Labels has gt_label=.*'a'"),
    ([0, 1] * 18, r'list has no get_data_info\(index\)'),
]


@pytest.mark.parametrize('name', [n for n in CASES if isinstance(CASES[n][0], Labels)])
@pytest.mark.parametrize(('dataset', 'message'), UNLABELLED)
def test_items_without_a_class_are_refused(name, dataset, message):
    with pytest.raises(UserError, match=f'{message}.*Fix: '):
        build(name, dataset=dataset)


FIVES = Labels([0, 1, 2, 3, 4] * 5)
#: Five positives and ten negatives, in batches of twelve.
FEW = dict(dataset=Labels([1] * 5 + [0] * 10, 'ab'))
#: Sampler, settings in place of those of its case, and the error.
REFUSED = [
    ('PKSampler', dict(batch_size=10, num_per_class=4), 'multiple of 4, .*num_per_class=4'),
    ('PKSampler', dict(num_per_class=1), 'at least 2, got 1'),
    ('PositiveRateSampler', dict(FEW, positive_rate=1), 'makes 12 positives .* only 5'),
    ('PositiveRateSampler', dict(FEW, positive_rate=0.01), 'positive_rate=0.01 makes 0 positives'),
    ('PositiveRateSampler', dict(FEW, positive_rate=8 / 12), 'makes 8 positives .* only 5'),
    ('PositiveRateSampler', dict(FEW, positive_rate=1 / 12), 'makes 11 negatives .* only 10'),
    ('PositiveRateSampler', dict(dataset=FIVES), 'has 5 classes, of which none'),
    ('InBatchPairSampler', dict(batch_size=63), 'only 62 positive pairs'),
    ('InBatchPairSampler', dict(num_uniform=12), 'num_uniform=12 .*from 0 to 11'),
    ('InBatchPairSampler sogram', dict(num_uniform=1), 'num_uniform=1 .*from 0 to 0'),
    ('InBatchPairSampler', dict(dataset=[1, 2]), 'Fix: a mmrank.InteractionDataset'),
    ('ClassPairSampler', dict(dataset=Labels([0, 0, 1])), 'there are only 2 pairs'),
]


@pytest.mark.parametrize(('name', 'settings', 'message'), REFUSED)
def test_refused_settings(name, settings, message):
    with pytest.raises(ValueError, match=message):
        build(name, **settings)


def _drawn(rank, name):
    np.random.seed(rank)  # what each would draw on its own differs
    sampler = build(name, seed=None, infinite=True)
    drawn = list(islice(iter(sampler), 4 * sampler.share))
    return torch.tensor([sampler.seed]), torch.tensor(drawn).reshape(4, -1)


@pytest.mark.slow
@every_sampler
@pytest.mark.parametrize('world_size', [2, 4])
def test_processes_agree_on_a_seed_of_their_own(name, world_size):
    seeds, drawn = zip(*run_on_ranks(_drawn, world_size, name))
    assert len({int(seed) for seed in seeds}) == 1
    alone = build(name, seed=int(seeds[0]))
    for number in range(4):
        shares = [share[number].numpy() for share in drawn]
        assert joined(name, shares) == alone.rank_batch(number).tolist()


def classes_of(sizes):
    """Items of classes of these sizes, mixed."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    names = [str(i) for i in range(len(sizes))]
    return Labels(np.random.default_rng(0).permutation(labels).tolist(), names)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    num_classes=st.integers(1, 5),
    num_per_class=st.integers(2, 5),
    seed=st.integers(0, 2**31 - 1),
)
def test_batches_hold_p_classes_with_k_images(sizes, num_classes, num_per_class, seed):
    dataset = classes_of(sizes)
    usable = {c for c, n in enumerate(sizes) if n >= 2}
    arguments = dict(
        batch_size=num_classes * num_per_class,
        num_per_class=num_per_class,
        seed=seed,
        infinite=True,
    )
    if len(usable) < num_classes:
        with pytest.raises(ValueError, match=rf'only {len(usable)} have so'):
            PKSampler(dataset, **arguments)
        return
    sampler = PKSampler(dataset, **arguments)
    for rows in map(sampler.global_batch, range(5)):
        assert rows.shape == (num_classes, num_per_class)
        labels = np.array(dataset)[rows]
        assert (labels == labels[:, :1]).all()
        classes = labels[:, 0].tolist()
        assert len(set(classes)) == num_classes
        assert set(classes) <= usable
        for row, label in zip(rows.tolist(), classes):
            times = Counter(row).values()
            assert len(times) == min(num_per_class, sizes[label])
            assert max(times) - min(times) <= 1


@given(
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    counts=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    seed=st.integers(0, 2**31 - 1),
)
def test_each_batch_has_the_positives_asked_for(sizes, counts, seed):
    arguments = dict(batch_size=sum(counts), positive_rate=counts[0] / sum(counts), seed=seed)
    if sizes[0] < counts[0] or sizes[1] < counts[1]:
        with pytest.raises(ValueError, match='but the data set has only'):
            PositiveRateSampler(classes_of(sizes[::-1]), **arguments)
        return
    dataset = classes_of(sizes[::-1])
    sampler = PositiveRateSampler(dataset, infinite=True, **arguments)
    stream = iter(sampler)
    seen = Counter()
    rounds = sizes[0] // counts[0]
    for _ in range(rounds):
        batch = list(islice(stream, sum(counts)))
        assert len(set(batch)) == len(batch)
        labels = [dataset[i] for i in batch]
        assert sum(labels) == counts[0]
        seen.update(i for i in batch if dataset[i])
    # One round deals out each positive at most once.
    assert set(seen.values()) == {1}
    assert len(seen) == rounds * counts[0]


def test_rate_is_a_share_of_the_batch():
    for rate, expected in ((0.5, 6), (0.05, 1), (0.13, 2)):
        assert PositiveRateSampler(classes_of([20, 20]), 12, rate).num_positives == expected


def test_which_class_is_positive():
    labels = [0, 1, 0, 0, 1, 0, 0, 0]
    dataset = Labels(labels, 'ab')
    sampler = PositiveRateSampler(dataset, 4, 1 / 4, seed=0)
    assert labels[sampler.global_batch(0)[0]] == 1
    # One class alone, as multi-label data sets have it.
    single = Labels([[], [0], [], []], ['bird'])
    sampler = PositiveRateSampler(single, 3, 1 / 3, seed=0)
    assert sampler.global_batch(0)[0] == 1


def test_uniform_candidates_follow_the_pairs(tmp_path):
    path = tmp_path / 'pairs.csv'
    path.write_text(''.join(f'{i % 5},{i % 4}\n' for i in range(20)))
    dataset = InteractionDataset(path)
    sampler = InBatchPairSampler(dataset, batch_size=6, num_uniform=2, seed=7)
    batch = dataset.__getitems__(sampler.rank_batch(0))
    assert (len(batch['rows']), len(batch['cols']), len(batch['right_index'])) == (6, 8, 8)
    assert torch.equal(batch['right']['ids'][batch['right_index']], batch['cols'])
    assert len(set(batch['cols'][6:].tolist())) == 2
