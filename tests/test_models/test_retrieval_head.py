"""The retrieval heads against definitions written out, and what they refuse."""

from types import SimpleNamespace

import pytest
import torch
from in_batch_enumeration import in_batch_loss
from labelled import Labels
from mmengine.logging import MessageHub
from score_lists import joined
from small_retriever import CLASSES, DIM, SOPRC, STABLE_AP, build_head, samples
from torch.nn.functional import normalize

from mmrank.engine.hooks import ClassPairsHook
from mmrank.functional import stable_ap_loss
from mmrank.models import InBatchRetrievalHead
from mmrank.registry import MODELS

# Without its state: mu is the mean of the class in the batch.
OFF = {**STABLE_AP, 'mean_mode': 'off'}


def _features(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, DIM, generator=g, dtype=torch.float64)


def _labels(n):
    g = torch.Generator().manual_seed(100)
    return torch.randint(0, CLASSES, (n,), generator=g).tolist()


def _by_hand(queries, gallery):
    """Mean over queries of the stable AP of their lists.

    Args:
        queries: List of (embedding, label, key).
        gallery: Likewise; a pair of one key is left out.
    """
    lists = []
    for x, label, key in queries:
        pos = [x @ y for y, c, k in gallery if c == label and k != key]
        neg = [x @ y for y, c, k in gallery if c != label and k != key]
        if pos:
            lists.append((label, torch.stack(pos), torch.stack(neg)))
    losses = []
    for label, pos, neg in lists:
        of_class = torch.cat([p for c, p, _ in lists if c == label])
        mu = of_class.detach().mean().float()
        losses.append(stable_ap_loss(*joined(pos, neg), mu, tau=0.1, bound=41.0))
    return torch.stack(losses).mean()


def test_every_image_searches_the_others():
    labels = _labels(11)
    x = _features(11).requires_grad_()
    result = build_head(OFF).loss((None, x), samples(labels))
    y = x.detach().clone().requires_grad_()
    entries = list(zip(normalize(y, dim=1), labels, range(11)))
    expected = _by_hand(entries, entries)
    torch.testing.assert_close(result['loss'], expected)
    result['loss'].backward()
    expected.backward()
    torch.testing.assert_close(x.grad, y.grad)
    scores = normalize(y, dim=1) @ normalize(y, dim=1).t()
    same = torch.tensor(labels)[:, None] == torch.tensor(labels)
    itself = torch.eye(11, dtype=torch.bool)
    for name, mask in (('pos_score', same & ~itself), ('neg_score', ~same)):
        torch.testing.assert_close(result[name], scores.detach()[mask].mean())


@pytest.mark.parametrize('copies', [1, 2])
def test_searches_the_memory_of_earlier_batches(copies):
    """Image 3 is in all batches, with other features each time."""
    head = build_head(OFF, memory=dict(size=9, dim=DIM)).double()
    kept = []
    for step, ids in enumerate(([0, 3, 5, 6], [3, 7, 8], [9, 3, 10, 11, 1])):
        labels = [i % 2 for i in ids]
        x = _features(copies * len(ids), step)
        loss = head.loss(x, samples(labels, ids), copies)['loss']
        x = normalize(x, dim=1)
        rows = list(zip(x, labels * copies, ids * copies))
        total = []
        for i, (query, label, image) in enumerate(rows):
            batch = [(y, c, 'no' if j != i else image) for j, (y, c, _) in enumerate(rows)]
            total.append(((query, label, image), batch + kept[-9:]))
        lists = []
        for (query, label, image), gallery in total:
            pos = [query @ y for y, c, k in gallery if c == label and k != image]
            neg = [query @ y for y, c, k in gallery if c != label]
            lists.append((label, torch.stack(pos), torch.stack(neg)))
        expected = []
        for label, pos, neg in lists:
            mu = torch.cat([p for c, p, _ in lists if c == label]).mean()
            expected.append(stable_ap_loss(*joined(pos, neg), mu.float(), tau=0.1, bound=41.0))
        expected = torch.stack(expected).mean()
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-7)
        # Only originals are kept, in float32.
        kept += [(y.float().double(), c, k) for y, c, k in rows[: len(ids)]]


@pytest.mark.parametrize(
    ('setting', 'earlier', 'first'), [({}, False, 1), ({'start_iter': 3}, False, 2), ({}, True, 0)]
)
def test_the_memory_waits_for_a_fifth_of_the_training(setting, earlier, first):
    hub = MessageHub.get_current_instance()
    hub.pop_info('max_iters')  # of an earlier test
    if earlier:  # a training of this process that is over
        hub.update_info('max_iters', 10)
    head = build_head(OFF, memory=dict(size=8, dim=DIM, **setting))
    hub.update_info('max_iters', 10)
    usable = []
    for i in range(4):
        head.loss(_features(2), samples([0, 1], [2 * i, 2 * i + 1]))
        usable.append(bool(head.memory.entries().usable.any()))
    hub.pop_info('max_iters')
    assert usable.index(True) == first


def test_equal_indices_of_other_classes_are_other_images():
    """ConcatDataset gives each of its data sets indices from 0."""
    head = build_head(OFF, memory=dict(size=8, dim=DIM))
    head.loss(_features(4), samples([0, 0, 1, 1], [0, 1, 2, 3]))
    seen = []
    head.loss_module.embedding_loss = lambda b: seen.append(b) or 0
    head.loss(_features(2), samples([0, 1], [0, 0]))
    assert seen[0].is_itself[:, 2:].tolist() == [
        [True, False, False, False] + [True] * 4,
        [False, False, False, False] + [True] * 4,
    ]


@pytest.mark.parametrize('labels', [[0], [0, 1, 2], [1, 1, 1]])
@pytest.mark.parametrize('loss', [STABLE_AP, SOPRC])
def test_lists_without_positives_or_negatives(labels, loss):
    x = _features(len(labels)).float().requires_grad_()
    memory = dict(size=4, dim=DIM)
    loss = build_head(loss, memory=memory).loss(x, samples(labels))['loss']
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()
    if len(set(labels)) == len(labels):
        assert loss == 0


def test_num_classes_of_the_loss_wins_and_is_filled_in():
    assert build_head().loss_module.num_columns == CLASSES
    own = build_head({**STABLE_AP, 'num_classes': 9})
    assert own.loss_module.num_columns == 9


def _without(key):
    batch = samples([0, 1, 1])
    del batch[1][key]
    return batch


@pytest.mark.parametrize(
    ('batch', 'words'),
    [
        (samples([0, 1, CLASSES]), 'gt_label must be >= 0 and < 4.*0 to 4'),
        (samples([0, 1, -1]), 'gt_label must be >= 0 .*-1 to 1'),
        (samples([0, 1]), '3 features for 2 data samples'),
        (_without('gt_label'), '1 of 3 data samples have no gt_label'),
        (_without('sample_idx'), 'no sample_idx.*meta_keys'),
    ],
)
def test_refuses_a_batch(batch, words):
    head = build_head(memory=dict(size=4, dim=DIM))
    with pytest.raises(ValueError, match=words):
        head.loss(_features(3), batch)


def test_refuses_labels_that_are_no_classes():
    batch = samples([0, 1])
    batch[1]['gt_label'] = torch.tensor([1, 2])
    with pytest.raises(ValueError, match='one integer per sample.*1, 2'):
        build_head().loss(_features(2), batch)
    batch[1]['gt_label'] = torch.tensor([0.5])
    with pytest.raises(ValueError, match='gt_label must be an integer'):
        build_head().loss(_features(2), batch)


def test_indices_are_not_needed_without_a_memory():
    build_head().loss(_features(3), _without('sample_idx'))


def test_the_name_of_the_loss_is_the_whole_config():
    x, labels = _features(12), _labels(12)
    cosines = dict(tau=0.3, score_range=(-1, 1), score_penalty=0)
    full = dict(cosines, mode='per_class', mean_scope='global')
    values = []
    for given in ({}, full):
        head = build_head(dict(type='mmrank.StableAPLoss', **given))
        values.append([head.loss(x + i, samples(labels, range(12)))['loss'] for i in range(2)])
    assert torch.equal(*map(torch.stack, values))


# Image 5 is alone in its class.
LABELS = [2, 0, 1, 0, 2, 7, 0, 1, 2]
PAIRS = sorted((i, j) for i in range(9) for j in range(9) if i != j and LABELS[i] == LABELS[j])


def build(mode='unbiased', pointwise='logistic', **other):
    loss = dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise)
    head = MODELS.build(dict(type='mmrank.InBatchRetrievalHead', loss=loss, **other))
    head.set_class_labels(torch.tensor(LABELS))
    return head


def loss_of_pairs(head, feats, pairs):
    images = [i for i, _ in pairs] + [j for _, j in pairs]
    labels = [LABELS[i] for i in images]
    return head.loss(feats[images], samples(labels, images))


@pytest.mark.parametrize('mode', ['unbiased', 'in_batch', 'pos_neg'])
def test_equals_the_function(mode):
    head = build(mode, 'square', scale=2.0, bias=0.1)
    feats = torch.randn(9, 4, dtype=torch.float64)
    pairs = [PAIRS[i] for i in (0, 3, 7, 11)]
    f = torch.nn.functional.normalize(feats, dim=1)
    rows, cols = torch.tensor(pairs).unbind(1)
    compact = torch.tensor([0, 1, 2, 3, 4, -1, 5, 6, 7])
    counts = torch.tensor([2, 2, 1, 2, 2, 2, 1, 2])
    expected = in_batch_loss(
        2 * f[rows] @ f[cols].t() + 0.1, compact[rows], compact[cols], counts, counts, mode
    )
    actual = loss_of_pairs(head, feats, pairs)
    torch.testing.assert_close(actual['loss'], expected)
    score = (2 * (f[rows] * f[cols]).sum(1) + 0.1).mean()
    torch.testing.assert_close(actual['pos_score'], score)


def test_hook_gives_the_head_the_classes():
    head = InBatchRetrievalHead(dict(type='mmrank.InBatchLoss'))
    loader = SimpleNamespace(dataset=Labels(LABELS))
    runner = SimpleNamespace(
        model=head,
        train_loop=SimpleNamespace(dataloader=loader),
        logger=SimpleNamespace(info=lambda text: None),
    )
    ClassPairsHook().before_train(runner)
    assert head.loss_module.counts.num_positives == len(PAIRS)
    assert not head.state_dict()


def test_bad_input():
    head, feats = build(), torch.randn(9, 3)
    with pytest.raises(ValueError, match='two images of one class'):
        head.loss(feats[:4], samples(LABELS[:4], range(4)))
    with pytest.raises(ValueError, match='are not a batch of pairs'):
        head.loss(feats[:3], samples(LABELS[:3], range(3)))
    # As a ConcatDataset numbers its images.
    with pytest.raises(ValueError, match='repeat their indices'):
        head.loss(feats[:2], samples([0, 0], [0, 1]))
    with pytest.raises(ValueError, match='repeat their indices'):
        head.loss(feats[:2], samples([0, 0], [1, 99]))
    fresh = InBatchRetrievalHead(dict(type='mmrank.InBatchLoss'))
    with pytest.raises(RuntimeError, match='ClassPairsHook'):
        fresh.loss(feats[:2], samples([0, 0], [1, 3]))
    with pytest.raises(ValueError, match='no class'):
        fresh.set_class_labels([0, 1, 2])
