"""What the adapters expect of other libraries: the parameters that they call with, the licences."""

import inspect

import adapter_models as models
import pytest
from adapter_models import DENOISING

transformers = pytest.importorskip('transformers')


def names_of(function):
    return [*inspect.signature(function).parameters]


@pytest.mark.skipif(transformers.__version__ < '5', reason='transformers 5 has it')
def test_the_libraries_call_what_the_adapters_expect():
    """A new parameter is a new input of the loss: look at what it does, then name it here."""
    from transformers.loss import loss_d_fine, loss_deformable_detr, loss_lw_detr, loss_rt_detr
    from transformers.loss.loss_utils import LOSS_MAPPING

    from mmrank.adapters import detection_transformers as ours

    for kind in models.TRANSFORMERS:
        stock = LOSS_MAPPING[f'{kind}ForObjectDetection']
        adapter = ours._RTDetrLosses if kind in DENOISING else ours._DeformableDetrLosses
        expected = names_of(adapter.forward)[1:]
        assert [x for x in expected if x in names_of(stock)] == names_of(stock), kind
    labels = ['self', 'outputs', 'targets', 'indices', 'num_boxes']
    for criterion, made_from in (
        (loss_rt_detr.RTDetrLoss, ['config']),
        (loss_d_fine.DFineLoss, ['config']),
        (
            loss_deformable_detr.DeformableDetrImageLoss,
            ['matcher', 'num_classes', 'focal_alpha', 'losses'],
        ),
        (
            loss_lw_detr.LwDetrImageLoss,
            ['matcher', 'num_classes', 'focal_alpha', 'losses', 'group_detr'],
        ),
    ):
        assert names_of(criterion) == made_from
        assert names_of(criterion.forward) == ['self', 'outputs', 'targets']
        method = getattr(criterion, 'loss_labels_vfl', criterion.loss_labels)
        assert names_of(method)[:5] == labels


def test_rfdetr_calls_what_its_adapter_expects():
    pytest.importorskip('rfdetr')
    from rfdetr.models.criterion import SetCriterion
    from rfdetr.models.postprocess import PostProcess

    assert names_of(SetCriterion.forward) == ['self', 'outputs', 'targets', 'num_boxes']
    labels = ['self', 'outputs', 'targets', 'indices', 'num_boxes', 'log', 'matched_targets']
    assert names_of(SetCriterion.loss_labels) == labels
    assert names_of(PostProcess.forward)[:3] == ['self', 'outputs', 'target_sizes']


def test_torchvision_calls_what_its_adapters_expect():
    from torchvision.models.detection import fcos, retinanet, roi_heads

    losses = ['self', 'targets', 'head_outputs', 'anchors', 'matched_idxs']
    assert names_of(retinanet.RetinaNetHead.compute_loss) == losses
    assert names_of(fcos.FCOSHead.compute_loss) == losses
    heads = roi_heads.RoIHeads
    forward = ['self', 'features', 'proposals', 'image_shapes', 'targets']
    assert names_of(heads.forward) == forward
    assert names_of(heads.select_training_samples) == ['self', 'proposals', 'targets']
    boxes = ['self', 'class_logits', 'box_regression', 'proposals', 'image_shapes']
    assert names_of(heads.postprocess_detections) == boxes
