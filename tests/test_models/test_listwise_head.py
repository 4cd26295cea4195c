import copy

import pytest
import torch

pytest.importorskip('mmdet')
from small_heads import CLASSES, FOCAL, HEADS, STABLE_AP, build_head, head_losses, make_inputs

from mmrank.losses import StableAPLoss
from mmrank.registry import MODELS


def _total(value):
    return sum(value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize('name', ['RetinaHead', 'ATSSHead', 'FCOSHead'])
def test_gathering_changes_nothing_for_a_pointwise_loss(name):
    """Focal loss of the gathered scores is the sum of the levels' losses."""
    stock = head_losses(build_head(name, FOCAL, listwise=False))
    ours = head_losses(build_head(name, FOCAL))
    assert stock.keys() == ours.keys()
    for key, value in stock.items():
        torch.testing.assert_close(_total(ours[key]), _total(value))


@pytest.mark.parametrize('name', list(HEADS))
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_heads_train_on_one_ranking_of_all_levels(name, mode):
    head = build_head(name, dict(STABLE_AP, mode=mode))
    loss = head.loss_cls.loss
    assert isinstance(loss, StableAPLoss)
    assert (loss.num_classes, loss.rho) == (CLASSES, 'auto')
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    values = []
    for _ in range(8):
        losses = head_losses(head)
        assert losses['loss_cls'].dim() == 0
        total = sum(_total(v) for k, v in losses.items() if 'loss' in k)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        values.append(losses['loss_cls'].item())
    assert values[-1] < values[0]
    assert all(p.grad is not None for p in head.parameters())
    assert loss.mean_positive.num_updates.max() == 8
    positives = loss.diagnostics['num_positive']
    assert 0 < positives < 200


@pytest.mark.parametrize('name', list(HEADS))
def test_a_batch_without_objects(name):
    head = build_head(name, STABLE_AP)
    losses = head_losses(head, boxes=False)
    assert losses['loss_cls'] == 0
    sum(_total(v) for k, v in losses.items() if 'loss' in k).backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert head.loss_cls.loss.mean_positive.num_updates.item() == 0


@pytest.mark.parametrize('name', list(HEADS))
@pytest.mark.parametrize('mode', ['flatten', 'per_class'])
def test_centred_scores_at_test_time(name, mode):
    """The mean positive score shows as 0.5 and no ranking changes."""

    def predict(centre):
        head = build_head(name, dict(STABLE_AP, mode=mode), centre_scores=centre)
        head.loss_cls.loss.mean_positive.mean.fill_(-4.0)
        features, _, metas = make_inputs()
        outs = head(features)
        results = head.predict_by_feat(*outs, batch_img_metas=metas)
        return outs[0], results

    logits, centred = predict(True)
    _, plain = predict(False)
    # Logits start near -4.6: a threshold of 0.05 drops them all uncentred.
    assert sum(len(r) for r in plain) == 0
    assert sum(len(r) for r in centred) > 0
    if name != 'ATSSHead' and name != 'FCOSHead':
        top = torch.cat([x.flatten() for x in logits]).max()
        assert max(r.scores.max() for r in centred).item() == pytest.approx(
            (top + 4).sigmoid().item(), abs=1e-5
        )


def test_centre_is_per_class_where_the_means_are():
    head = build_head('RetinaHead', dict(STABLE_AP, mode='per_class'))
    centre = torch.tensor([1.0, 2.0, 3.0, 4.0])
    scores = torch.zeros(2, 3 * CLASSES, 5, 5)
    moved = head._subtract(scores, centre)
    # Retina's channels are (anchor, class) with the class running fastest.
    assert moved.view(2, 3, CLASSES, 25)[0, :, 2].unique().item() == -3


def test_state_is_saved_with_the_head():
    head = build_head('ATSSHead', STABLE_AP)
    head_losses(head)
    state = head.state_dict()
    assert state['loss_cls.loss.mean_positive.num_updates'].item() == 1
    other = build_head('ATSSHead', STABLE_AP)
    other.load_state_dict(state)
    assert torch.equal(
        other.loss_cls.loss.mean_positive.mean, head.loss_cls.loss.mean_positive.mean
    )
    assert copy.deepcopy(head).loss_cls.loss is not head.loss_cls.loss


def test_explicit_settings_win_over_the_defaults():
    head = build_head('RetinaHead', dict(STABLE_AP, num_classes=CLASSES))
    assert head.loss_cls.loss.num_classes == CLASSES


def test_bad_configuration_is_named():
    with pytest.raises(KeyError, match="head_type='mmdet.NoHead'"):
        MODELS.build(dict(type='mmrank.ListwiseHead', head_type='mmdet.NoHead', loss_cls=STABLE_AP))
    with pytest.raises(KeyError, match='mmrank.NoLoss'):
        build_head('RetinaHead', dict(type='mmrank.NoLoss'))
    head = build_head('RetinaHead', STABLE_AP)
    with pytest.raises(RuntimeError, match='outside loss_by_feat'):
        head.loss_cls(torch.zeros(1, 4), torch.zeros(1))


def test_an_interrupted_pass_leaves_nothing_behind():
    head = build_head('RetinaHead', STABLE_AP)
    features, truths, metas = make_inputs()
    with pytest.raises(Exception, match='.*'):
        head.loss_by_feat(*head(features), truths[:1], metas)
    losses = head_losses(head)
    fresh = head_losses(build_head('RetinaHead', STABLE_AP))
    torch.testing.assert_close(losses['loss_cls'], fresh['loss_cls'])
