"""What RetinaNet and FCOS of torchvision have beside test_detectors.py."""

import json

import adapter_models as models
import pytest
import torch
from docs_blocks import PAGES, blocks
from torch import nn
from torchvision.ops import box_convert, box_iou

from mmrank.adapters import remove_ranking_loss, use_ranking_loss
from mmrank.adapters.torchvision_rcnn import _log_odds
from mmrank.losses import ALRPLoss, RankSortLoss, StableAPLoss

both = pytest.mark.parametrize('kind', ['RetinaNet', 'FCOS'])


def compute(kind, model, boxes=True):
    """Losses of a batch, and how often the loss was called with what, and the head from what."""
    seen = []

    def keep(targets, head_outputs, anchors, matched_idxs):
        seen.append((targets, head_outputs, anchors, matched_idxs))
        return type(model.head).compute_loss(model.head, *seen[-1])

    model.head.compute_loss = keep
    hook = model.head.ranking_loss.register_forward_pre_hook(
        lambda _, args, told: seen.append((*args, told)), with_kwargs=True
    )
    parts = models.compute(kind, model, *models.batch(boxes=boxes)).parts
    hook.remove()
    del model.head.compute_loss
    return parts, *seen


@both
def test_each_anchor_is_ranked_with_the_class_of_its_object(kind):
    model = use_ranking_loss(models.build(kind), StableAPLoss())
    _, (targets, outputs, _, matched), (scores, labels, weight, _) = compute(kind, model)
    expected = [
        int(target['labels'][i]) if i >= 0 else models.CLASSES
        for target, indices in zip(targets, matched)
        for i in indices.tolist()
    ]
    assert labels.tolist() == expected
    assert torch.equal(scores, outputs['cls_logits'].flatten(0, 1))
    between = torch.cat(matched) == -2
    assert torch.equal(weight, (~between).float())
    assert between.any() == (kind == 'RetinaNet')


@both
def test_quality_is_the_iou_of_the_decoded_boxes(kind):
    model = use_ranking_loss(models.build(kind), RankSortLoss())
    if kind == 'FCOS':
        # Boxes as large as the points' cells.
        nn.init.constant_(model.head.regression_head.bbox_reg.bias, 0.5)
    losses, (targets, outputs, anchors, matched), (*_, told) = compute(kind, model)
    coder = model.box_coder
    decode = coder.decode if kind == 'FCOS' else coder.decode_single
    expected = []
    for i, target in enumerate(targets):
        rows = matched[i] >= 0
        decoded = decode(outputs['bbox_regression'][i][rows], anchors[i][rows])
        expected.append(box_iou(decoded, target['boxes'][matched[i][rows]]).diag())
    expected = torch.cat(expected).detach()
    assert expected.max() > 0.1
    torch.testing.assert_close(told['quality'], expected, rtol=0, atol=1e-6)
    assert not told['quality'].requires_grad
    plain = models.compute(kind, remove_ranking_loss(model), *models.batch()).parts
    assert torch.equal(losses['bbox_regression'], plain['bbox_regression'])


def test_alrp_and_balanced_boxes():
    model = use_ranking_loss(models.build('RetinaNet'), ALRPLoss())
    losses, *_ = compute('RetinaNet', model)
    sum(losses.values()).backward()
    assert losses['bbox_regression'] > 0
    assert model.head.regression_head.bbox_reg.weight.grad.abs().sum() > 0
    empty, *_ = compute('RetinaNet', model, boxes=False)
    assert empty['bbox_regression'] == 0
    assert empty['bbox_regression'].requires_grad
    # Balanced, the boxes weigh as much as the classes.
    found = []
    for balanced in (False, True):
        model = models.build('RetinaNet')
        use_ranking_loss(model, StableAPLoss(), balance_boxes=balanced)
        losses, *_ = compute('RetinaNet', model)
        losses['bbox_regression'].backward()
        found.append((losses, model.head.regression_head.bbox_reg.weight.grad))
    (plain, before), (losses, after) = found
    torch.testing.assert_close(losses['bbox_regression'], losses['classification'])
    ratio = plain['classification'] / plain['bbox_regression']
    assert abs(ratio - 1) > 0.1
    torch.testing.assert_close(ratio * before, after)


@both
def test_a_centre_for_each_class_goes_to_its_column(kind):
    loss = StableAPLoss(num_classes=models.CLASSES, mode='per_class')
    model = use_ranking_loss(models.build(kind), loss).eval()
    mean = model.head.ranking_loss.mean_positive.mean
    mean.copy_(torch.tensor([-1.0, 0.5, 2.0]))
    x = [*model.backbone(models.batch()[0]).values()]
    with torch.no_grad():
        shown = model.head(x)['cls_logits']
        raw = models.build(kind).eval().head(x)['cls_logits']
        torch.testing.assert_close(raw - shown, mean.expand_as(raw))
        left = remove_ranking_loss(model)
        torch.testing.assert_close(left.head(x)['cls_logits'], shown)


def test_log_odds_are_exact_where_a_class_is_almost_sure():
    logits = torch.tensor([[40.0, 0, -3], [1, 1, 1], [-60, 30, 29], [0, -90, 90]]).double()
    expected = torch.stack(
        [logits[:, i] - logits[:, [j for j in range(3) if j != i]].logsumexp(1) for i in range(3)],
        1,
    )
    leaf = logits.float().requires_grad_()
    found = _log_odds(leaf)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    found.sum().backward()
    assert leaf.grad.isfinite().all()


def test_the_block_of_the_page_makes_probabilities(tmp_path, monkeypatch):
    """Every second box that the model finds is an object."""
    model = use_ranking_loss(models.build('RetinaNet'), StableAPLoss())
    image = models.batch()[0][:1]
    (before,) = models.predict('RetinaNet', model, image)
    boxes = [
        dict(image_id=1, category_id=int(label), bbox=box.tolist(), score=float(score))
        for box, score, label in zip(
            box_convert(before['boxes'], 'xyxy', 'xywh'), before['scores'], before['labels']
        )
    ]
    objects = [dict(x, id=i, area=1, iscrowd=0) for i, x in enumerate(boxes[:20:2], 1)]
    names = [dict(id=i, name=str(i)) for i in range(models.CLASSES)]
    truth = dict(images=[dict(id=1, width=64, height=64)], annotations=objects, categories=names)
    for name, content in (('val', truth), ('val.bbox', boxes)):
        (tmp_path / f'{name}.json').write_text(json.dumps(content))
    (block,) = blocks(PAGES / 'users/other_detectors.md', '{.python .needs-boxes}')
    assert len(block.splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    names = dict(model=model)
    exec(block, names)
    (found,) = models.predict('RetinaNet', model, image)
    share = names['hits'].float().mean()
    assert share > 0.01
    torch.testing.assert_close(found['scores'].mean(), share, rtol=0, atol=0.05)
