"""What RetinaNet and FCOS of torchvision have beside test_detectors.py."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torchvision.models.detection import FCOS, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import box_iou

from mmrank.adapters import remove_ranking_loss, use_ranking_loss
from mmrank.errors import UserError
from mmrank.losses import ALRPLoss, RankSortLoss, SmoothAPLoss, SOAPLoss, StableAPLoss

CLASSES = 3


class Backbone(nn.Module):
    """Two levels of 32 channels, as many as GroupNorm has groups."""

    out_channels = 32

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=8, padding=1)
        self.down = nn.Conv2d(32, 32, 3, stride=2, padding=1)

    def forward(self, x):
        x = self.stem(x).relu()
        return {'0': x, '1': self.down(x).relu()}


def detector(kind):
    torch.manual_seed(0)
    sizes = ((16,), (32,))
    ratios = 1 if kind is FCOS else 2
    anchors = AnchorGenerator(sizes, ((1.0, 2.0)[:ratios],) * 2)
    model = kind(
        Backbone(), num_classes=CLASSES, anchor_generator=anchors, min_size=64, max_size=64
    )
    if kind is RetinaNet:
        # Logits of the first step differ enough to be ranked.
        nn.init.normal_(model.head.classification_head.cls_logits.weight)
    return model


def batch(dtype=torch.float32, boxes=True):
    g = torch.Generator().manual_seed(1)
    images = [torch.rand(3, 64, 64, generator=g).to(dtype) for _ in range(3)]
    true = torch.tensor([[4, 4, 22, 20], [20, 30, 50, 60], [40, 2, 58, 18.0]])
    targets = [
        dict(boxes=true[:2].to(dtype), labels=torch.tensor([0, 2])),
        dict(boxes=true[2:].to(dtype), labels=torch.tensor([1])),
        dict(boxes=true[:0].to(dtype), labels=torch.zeros(0).long()),
    ]
    if not boxes:
        targets = [targets[2]] * 3
    return images, targets


def outputs_and_matches(model):
    """Spy: what the head computes its loss from."""
    seen = {}

    def keep(targets, head_outputs, anchors, matched_idxs):
        seen.update(outputs=head_outputs, anchors=anchors, matched=matched_idxs)
        return type(model.head).compute_loss(
            model.head, targets, head_outputs, anchors, matched_idxs
        )

    model.head.compute_loss = keep
    return seen


def labels_by_hand(targets, matched):
    rows = []
    for target, indices in zip(targets, matched):
        for i in indices.tolist():
            rows.append(int(target['labels'][i]) if i >= 0 else CLASSES)
    return torch.tensor(rows)


@pytest.mark.parametrize('kind', [RetinaNet, FCOS])
def test_values_and_gradients_are_those_of_the_loss(kind):
    model = detector(kind).double()
    stock = copy.deepcopy(model)
    loss = StableAPLoss(num_classes=CLASSES, mode='per_class')
    assert use_ranking_loss(model, loss) is model
    seen = outputs_and_matches(model)
    images, targets = batch(torch.float64)
    losses = model(images, targets)
    logits = seen['outputs']['cls_logits']
    matched = torch.cat(seen['matched'])
    if kind is RetinaNet:
        assert (matched == -2).any(), 'no anchor between the thresholds'
    assert (matched >= 0).sum() > 3
    direct = copy.deepcopy(loss)(
        logits.flatten(0, 1)[matched != -2], labels_by_hand(targets, seen['matched'])[matched != -2]
    )
    torch.testing.assert_close(losses['classification'], direct, rtol=1e-12, atol=0)
    expected = torch.autograd.grad(direct, logits, retain_graph=True)[0]
    found = torch.autograd.grad(losses['classification'], logits, retain_graph=True)[0]
    assert expected.abs().sum() > 0
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)
    # The other losses, and their gradients, are those of the stock model.
    plain = stock(images, targets)
    assert losses.keys() == plain.keys()
    for name in losses.keys() - {'classification'}:
        assert torch.equal(losses[name], plain[name])
    sum(losses.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_quality_and_box_losses_are_those_of_the_decoded_boxes():
    images, targets = batch()
    for kind in (RetinaNet, FCOS):
        model = use_ranking_loss(detector(kind), RankSortLoss())
        if kind is FCOS:
            # Boxes as large as the points' cells.
            nn.init.constant_(model.head.regression_head.bbox_reg.bias, 0.5)
        loss, seen = model.head.ranking_loss, outputs_and_matches(model)
        told = []
        loss.register_forward_pre_hook(
            lambda _, args, kwargs, told=told: told.append(kwargs['quality']), with_kwargs=True
        )
        losses = model(images, targets)
        expected = []
        for i, target in enumerate(targets):
            rows = seen['matched'][i] >= 0
            codes = seen['outputs']['bbox_regression'][i][rows]
            own = seen['anchors'][i][rows]
            decoded = (
                model.box_coder.decode(codes, own)
                if kind is FCOS
                else model.box_coder.decode_single(codes, own)
            )
            true = target['boxes'][seen['matched'][i][rows]]
            expected.append(box_iou(decoded, true).diag())
        expected = torch.cat(expected).detach()
        assert expected.max() > 0.1
        torch.testing.assert_close(told[0], expected, rtol=0, atol=1e-6)
        assert not told[0].requires_grad
        plain = remove_ranking_loss(model)(images, targets)
        assert torch.equal(losses['bbox_regression'], plain['bbox_regression'])
    # aLRP computes the box loss itself.
    model = use_ranking_loss(detector(RetinaNet), ALRPLoss())
    losses = model(images, targets)
    sum(losses.values()).backward()
    grad = model.head.regression_head.bbox_reg.weight.grad
    assert losses['bbox_regression'] > 0
    assert grad.abs().sum() > 0
    empty = model(*batch(boxes=False))
    assert empty['bbox_regression'] == 0
    assert empty['bbox_regression'].requires_grad


def test_balanced_boxes_weigh_as_much_as_the_classes():
    images, targets = batch()
    plain = use_ranking_loss(detector(RetinaNet), StableAPLoss())
    model = use_ranking_loss(detector(RetinaNet), StableAPLoss(), balance_boxes=True)
    losses, unbalanced = model(images, targets), plain(images, targets)
    torch.testing.assert_close(losses['bbox_regression'], losses['classification'])
    ratio = unbalanced['classification'] / unbalanced['bbox_regression']
    assert abs(ratio - 1) > 0.1
    names = 'head.regression_head.bbox_reg.weight'
    grads = []
    for m, x in ((model, losses), (plain, unbalanced)):
        x['bbox_regression'].backward()
        grads.append(m.get_parameter(names).grad)
    torch.testing.assert_close(grads[0], ratio * grads[1])


@pytest.mark.parametrize('kind', [RetinaNet, FCOS])
def test_trains_predicts_and_leaves(kind):
    model = use_ranking_loss(detector(kind), StableAPLoss())
    images, targets = batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    risks = []
    for _ in range(15):
        losses = model(images, targets)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        risks.append(model.head.ranking_loss.diagnostics['risk'].item())
    assert risks[-1] < 0.5 * risks[0]
    centre = model.head.ranking_loss.logit_centre()
    model.eval()
    uncentred = copy.deepcopy(model)
    uncentred.head.centre_scores = False
    with torch.no_grad():
        found, raw = model.head, uncentred.head
        x = [*model.backbone(torch.stack(images)).values()]
        torch.testing.assert_close(found(x)['cls_logits'], raw(x)['cls_logits'] - centre)
        predicted = model(images)
    # The positives' mean is shown as 0.5: some are above.
    assert all(len(p['boxes']) for p in predicted[:2])
    assert max(p['scores'].max() for p in predicted) > 0.3

    # State and model come back bit by bit.
    fresh = use_ranking_loss(detector(kind), StableAPLoss())
    fresh.load_state_dict(model.state_dict())
    for again in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.state_dict().keys() == model.state_dict().keys()
        again.eval()
        for a, b in zip(again(images), predicted):
            assert torch.equal(a['scores'], b['scores'])

    # Without mmrank the stock class predicts the same.
    left = remove_ranking_loss(model)
    assert type(left.head).__module__.startswith('torchvision')
    stock = detector(kind).eval()
    stock.load_state_dict(left.state_dict())
    for a, b in zip(stock(images), predicted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_centre_for_each_class_goes_to_its_column():
    loss = StableAPLoss(num_classes=CLASSES, mode='per_class')
    model = use_ranking_loss(detector(RetinaNet), loss).eval()
    mean = model.head.ranking_loss.mean_positive.mean
    mean.copy_(torch.tensor([-1.0, 0.5, 2.0]))
    x = [*model.backbone(torch.stack(batch()[0])).values()]
    with torch.no_grad():
        shown = model.head(x)['cls_logits']
        model.head.centre_scores = False
        raw = model.head(x)['cls_logits']
        torch.testing.assert_close(raw - shown, mean.expand_as(raw))
        model.head.centre_scores = True
        left = remove_ranking_loss(model)
        torch.testing.assert_close(left.head(x)['cls_logits'], shown)


def test_messages():
    model = detector(RetinaNet)
    with pytest.raises(UserError, match='Fix: StableAPLoss.num_classes=3'):
        use_ranking_loss(model, StableAPLoss(num_classes=5))
    with pytest.raises(UserError, match='state for each sample'):
        use_ranking_loss(model, SOAPLoss(num_samples=5, num_classes=3))
    with pytest.raises(UserError, match='remove balance_boxes'):
        use_ranking_loss(model, ALRPLoss(), balance_boxes=True)
    with pytest.raises(TypeError, match='neither a ranking loss'):
        use_ranking_loss(model, nn.BCEWithLogitsLoss())
    with pytest.raises(TypeError, match='model=Linear has no adapter'):
        use_ranking_loss(nn.Linear(2, 2), StableAPLoss())
    with pytest.raises(UserError, match='has no ranking loss'):
        remove_ranking_loss(model)
    use_ranking_loss(model, SmoothAPLoss(tau=1.0))
    with pytest.raises(UserError, match='has a ranking loss already'):
        use_ranking_loss(model, StableAPLoss())
    other = detector(RetinaNet)
    other.head = nn.Identity()
    with pytest.raises(TypeError, match='model.head=Identity has no adapter'):
        use_ranking_loss(other, StableAPLoss())
