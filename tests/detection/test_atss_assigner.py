import pytest
import torch

pytest.importorskip('mmdet')
from mmdet.models.task_modules.assigners import ATSSAssigner
from mmdet.models.task_modules.prior_generators import AnchorGenerator
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData

from mmrank.models.atss_assigner import count_level_priors
from mmrank.registry import TASK_UTILS

SIZES = [(16, 16), (8, 8), (4, 4)]


def _priors(**kwargs):
    generator = AnchorGenerator(
        ratios=[1.0], octave_base_scale=8, strides=[8, 16, 32], **{'scales_per_octave': 1, **kwargs}
    )
    return generator.grid_priors(SIZES, device='cpu')


def test_levels_are_read_off_the_anchors():
    assert count_level_priors(torch.cat(_priors())) == [256, 64, 16]
    # Anchors outside the image may have been dropped before.
    kept = torch.cat(_priors())[5:-3]
    assert count_level_priors(kept) == [251, 64, 13]
    with pytest.raises(ValueError, match='scales_per_octave=1'):
        count_level_priors(torch.cat(_priors(scales_per_octave=3)))


def test_assigns_as_atss_does():
    priors = InstanceData(priors=torch.cat(_priors()))
    truth = InstanceData(
        bboxes=torch.tensor([[10.0, 10, 70, 80], [60, 50, 120, 126]]), labels=torch.tensor([1, 0])
    )
    # As inside a runner of another package: the types must bring their scope.
    with DefaultScope.overwrite_default_scope('mmengine'):
        ours = TASK_UTILS.build(dict(type='mmrank.AnchorATSSAssigner', topk=9))
    got = ours.assign(priors, truth, None)
    theirs = ATSSAssigner(topk=9, iou_calculator=dict(type='mmdet.BboxOverlaps2D'))
    expected = theirs.assign(priors, [256, 64, 16], truth)
    assert torch.equal(got.gt_inds, expected.gt_inds)
    assert torch.equal(got.labels, expected.labels)
    assert (got.gt_inds > 0).any()
