"""Unmasked negatives cost a rare class its second look."""

import pytest
import torch

from research.theory.federated_cost import ARMS, CLASSES, RARE, make_boxes, rare_class_ap

STABLE_AP = dict(type='mmrank.StableAPLoss', mode='per_class')


def test_half_of_the_rare_class_is_not_annotated():
    boxes = make_boxes(torch.Generator().manual_seed(0))
    is_rare = boxes.labels == RARE
    known = boxes.annotated == RARE
    assert is_rare.sum() == 2 * known.sum()
    assert not (known & ~is_rare).any()
    others = boxes.labels != RARE
    assert boxes.annotated[others].equal(boxes.labels[others])
    # Where a rare box is not annotated nothing is said of its class.
    labels = [meta['exhaustive_labels'] for meta in boxes.metas]
    silent = {i for i, own in enumerate(labels) if RARE not in own}
    unknown = boxes.images[is_rare & ~known].unique().tolist()
    assert silent.issuperset(unknown)
    assert not silent.intersection(boxes.images[known].tolist())
    verified = set(range(len(labels))) - silent
    assert len(verified) > boxes.images[known].unique().numel()
    assert all(own[-CLASSES + 1 :] == [1, 2, 3] for own in labels)


@pytest.mark.slow
def test_the_mask_keeps_what_unverified_negatives_cost():
    for seed in range(3):
        every, masked, unmasked = (rare_class_ap(arm, seed, STABLE_AP) for arm in ARMS)
        # AP of the rare class by 8 points or more; the others are alike.
        assert masked[0] > unmasked[0] + 0.08
        assert masked[0] > every[0] - 0.1
        assert abs(masked[1] - unmasked[1]) < 0.01


def test_missing_annotations_may_have_the_same_look():
    g = torch.Generator()
    one, other = (make_boxes(g.manual_seed(1), same_look=same) for same in (True, False))
    assert one.labels.equal(other.labels)
    moved = (one.features != other.features).any(1)
    assert moved.equal((one.labels == RARE) & (one.annotated != RARE))
