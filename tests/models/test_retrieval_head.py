"""The retrieval heads against definitions written out, and what they refuse."""

import pytest
import torch
from in_batch_enumeration import in_batch_loss
from labelled import Labels
from mmengine.logging import MessageHub
from score_lists import joined
from small_retriever import CLASSES, DIM, STABLE_AP, build_head, samples
from tiny_runner import stand_in
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


@pytest.mark.parametrize('copies', [1, 2])
def test_searches_the_memory_of_earlier_batches(copies):
    """Image 3 is in all batches, with other features each time."""
    head = build_head(OFF, memory=dict(size=9, dim=DIM)).double()
    kept = []
    for step, ids in enumerate(([0, 3, 5, 6], [3, 7, 8], [9, 3, 10, 11, 1])):
        labels = [i % 2 for i in ids]
        feats = _features(copies * len(ids), step).requires_grad_()
        result = head.loss(feats, samples(labels, ids), copies)
        loss = result['loss']
        x = normalize(feats, dim=1)
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
        gradients = [torch.autograd.grad(y, feats, retain_graph=True) for y in (loss, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-7)
        if not kept and copies == 1:
            for name, part in (('pos_score', 1), ('neg_score', 2)):
                mean = torch.cat([x[part] for x in lists]).mean()
                torch.testing.assert_close(result[name], mean.detach(), rtol=1e-6, atol=1e-7)
        # Only originals are kept, in float32.
        kept += [(y.detach().float().double(), c, k) for y, c, k in rows[: len(ids)]]


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


def _without(key):
    batch = samples([0, 1, 1])
    del batch[1][key]
    return batch


def _labelled(label):
    batch = samples([0, 1, 1])
    batch[1]['gt_label'] = torch.tensor(label)
    return batch


@pytest.mark.parametrize(
    ('batch', 'words'),
    [
        (samples([0, 1, CLASSES]), 'gt_label must be >= 0 and < 4.*0 to 4'),
        (samples([0, 1, -1]), 'gt_label must be >= 0 .*-1 to 1'),
        (samples([0, 1]), '3 features for 2 data samples'),
        (_without('gt_label'), '1 of 3 data samples have no gt_label'),
        (_without('sample_idx'), 'no sample_idx.*meta_keys'),
        (_labelled([1, 2]), 'one integer per sample.*1, 2'),
        (_labelled([0.5]), 'gt_label must be an integer'),
    ],
)
def test_refuses_a_batch(batch, words):
    head = build_head(memory=dict(size=4, dim=DIM))
    with pytest.raises(ValueError, match=words):
        head.loss(_features(3), batch)
    build_head().loss(_features(3), _without('sample_idx'))  # not needed without a memory


def test_the_name_of_the_loss_is_the_whole_config():
    x = _features(12)
    labels = [i % CLASSES for i in range(12)]
    assert build_head().loss_module.num_columns == CLASSES
    assert build_head({**STABLE_AP, 'num_classes': 9}).loss_module.num_columns == 9
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
    images = [i for i, _ in pairs] + [j for _, j in pairs]
    actual = head.loss(feats[images], samples([LABELS[i] for i in images], images))
    torch.testing.assert_close(actual['loss'], expected)
    score = (2 * (f[rows] * f[cols]).sum(1) + 0.1).mean()
    torch.testing.assert_close(actual['pos_score'], score)


def test_hook_gives_the_head_the_classes():
    head = InBatchRetrievalHead(dict(type='mmrank.InBatchLoss'))
    ClassPairsHook().before_train(stand_in(Labels(LABELS), head))
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
