"""In-batch sampling for retrieval: pairs from classes, and the head."""

from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
from in_batch_enumeration import in_batch_loss
from labelled import Labels
from small_retriever import samples

from mmrank.engine.hooks import ClassPairsHook
from mmrank.models import InBatchRetrievalHead
from mmrank.registry import MODELS

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


def full_objective(head, feats):
    """Of all images that have a pair, in float64."""
    f = feats / feats.norm(dim=1, keepdim=True)
    total, used = 0, [i for i in range(9) if LABELS[i] != 7]
    for i in used:
        for j in used:
            y = 1 if (i, j) in PAIRS else -1
            score = head.scale * f[i] @ f[j] + head.bias
            total = total + (1 + (-y * score).exp()).log()
    return total / len(used) ** 2


def test_mean_over_all_batches_is_the_full_objective():
    head = build(scale=3, bias=-0.5)
    g = torch.Generator().manual_seed(0)
    feats = torch.randn(9, 3, generator=g, dtype=torch.float64)
    feats.requires_grad_()
    batches = list(combinations(PAIRS, 2))
    mean = sum(loss_of_pairs(head, feats, x)['loss'] for x in batches)
    mean = mean / len(batches)
    expected = full_objective(head, feats)
    torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-12)
    # Also that an image has no gradient from its cell with itself.
    torch.testing.assert_close(
        *(torch.autograd.grad(x, feats)[0] for x in (mean, expected)), rtol=1e-9, atol=1e-12
    )


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
