"""What every detector of another library keeps to on a ranking loss."""

import copy
import importlib.util
import pickle
import re

import adapter_models as models
import pytest
import torch
from adapter_models import (
    AUTHORS,
    CLASSES,
    DENOISING,
    FOCAL,
    GROUPED,
    KINDS,
    TORCHVISION,
    YOLO,
    batch,
    build,
)
from docs_blocks import PAGES, blocks
from gloo_processes import run_on_ranks
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.adapters import ClassPart, remove_ranking_loss, show_probabilities, use_ranking_loss
from mmrank.adapters.class_part import centred_layers
from mmrank.errors import UserError
from mmrank.losses import (
    ALRPLoss,
    GradedAPLoss,
    IABCELoss,
    InfoNCELoss,
    MALLoss,
    QualityFocalLoss,
    StableAPLoss,
    VarifocalLoss,
)

transformers = pytest.importorskip('transformers')
FIVE = transformers.__version__.startswith('5')
LATER = pytest.mark.skipif(not FIVE, reason='transformers 5 has it')
MARKS = dict.fromkeys(('Deimv2', 'ConditionalDetr', 'DabDetr', *GROUPED), LATER)
PACKAGES = {'rfdetr': 'rfdetr', **dict.fromkeys([*YOLO, *AUTHORS], 'libreyolo')}
PACKAGES |= dict.fromkeys(['YOLO11', 'YOLO26'], 'ultralytics')
PACKAGES |= dict.fromkeys(['LTDETR', 'LTDETR1'], 'lightly_train')
for kind, package in PACKAGES.items():
    absent = not importlib.util.find_spec(package)
    MARKS[kind] = pytest.mark.skipif(absent, reason=f'pip install {package}')
#: Part of these computes in float32 whatever one asks for.
SINGLE = ['DFine', 'Deimv2', 'DabDetr', 'rfdetr', *AUTHORS]
#: Their boxes are distributions of each edge.
FINE = ['DFine', 'Deimv2']
#: One for each way in which the adapters reach a loss; the others share their code.
FAST = ['RetinaNet', 'FasterRCNN', 'RTDetr', 'DeformableDetr', 'LwDetr', *YOLO, *AUTHORS]
#: Of a training on one batch, where 20 are too few. The queries of Conditional DETR and DAB-DETR
#: begin with nearly equal boxes; by their own focal loss they come apart as late.
STEPS = {'YOLO11': 40, 'YOLO26': 60, 'RTDetr': 40, 'RTDetrV2': 40}
STEPS |= {'ConditionalDetr': 400, 'DabDetr': 800}
#: Of anchors or points.
DENSE = [*TORCHVISION, *YOLO]


def all_of(kinds, fast=KINDS):
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        'kind',
        [
            pytest.param(x, marks=[m for m in (MARKS.get(x), None if x in fast else slow) if m])
            for x in kinds
        ],
    )


every, every_shared = all_of(KINDS), all_of(KINDS, FAST)
DETRS = [kind for kind in KINDS if kind not in DENSE]


class SoftBCE(QualityFocalLoss):
    """Binary cross-entropy divided by the sum of the qualities, as heads of YOLO have it."""

    def __init__(self):
        super().__init__(gamma=0.0)

    def forward(self, scores, labels, *args, quality, **kwargs):
        loss = super().forward(scores, labels, *args, quality=quality, **kwargs)
        return loss * (labels < CLASSES).sum() / quality.sum().clamp(min=1)


def dtype_of(kind):
    """The widest in which the library computes."""
    return torch.float32 if kind in (*SINGLE, *GROUPED, *YOLO) else torch.float64


def ranked(kind, loss=None, **config):
    return use_ranking_loss(build(kind, **config), loss or StableAPLoss())


def run(kind, model, dtype=torch.float32, boxes=True):
    """One step with the same random numbers each time."""
    torch.manual_seed(5)
    return models.compute(kind, model, *batch(dtype, boxes))


def key_of(kind, name):
    """Name of the class loss of a layer among the parts."""
    if name == 'all':
        return 'loss_classifier' if kind.endswith('RCNN') else 'classification'
    if kind in YOLO:
        return name
    if kind in AUTHORS:
        loss = 'loss_mal' if kind == 'LibreDEIM' else 'loss_vfl'
        return loss if name == 'last' else f'{loss}_{name}'
    suffix = '' if name == 'last' else f'_{name}'
    return f'loss_ranking{suffix}' if kind in DENOISING else f'loss_ce{suffix}'.replace('aux_', '')


def spy(model):
    """What each ranking of a model is called with; its calls are then made one by one."""
    calls = {}

    def note(name):
        def hook(module, args, told):
            assert name not in calls, 'two calls of one layer'
            calls[name] = (copy.deepcopy(module), args, told)

        return hook

    for name, loss in models.rankings(model).items():
        loss.register_forward_pre_hook(note(name), with_kwargs=True)
    return calls


@every
def test_class_losses_and_gradients_are_those_of_the_loss(kind):
    model = ranked(kind).to(dtype_of(kind))
    calls = spy(model)
    found = run(kind, model, dtype_of(kind))
    assert [*calls] == [*models.rankings(model)]
    for name, (loss, (scores, labels, weight), told) in calls.items():
        loss._forward_pre_hooks.clear()
        rows = slice(None) if weight is None else weight > 0
        leaf = scores.detach()[rows].requires_grad_()
        direct = loss(leaf, labels[rows], **{**told, 'avg_factor': len(leaf)})
        direct = direct * (8 if kind in YOLO else 1)
        part = found.parts[key_of(kind, name)]
        torch.testing.assert_close(part, direct, rtol=1e-6, atol=0)
        (expected,) = torch.autograd.grad(direct, leaf)
        (grad,) = torch.autograd.grad(part, scores, retain_graph=True)
        torch.testing.assert_close(grad[rows], expected, rtol=1e-6, atol=1e-9)
        assert expected.abs().sum() > 0
        positives = int(((labels >= 0) & (labels < CLASSES))[rows].sum())
        if kind in DENSE:
            assert positives >= 3
        elif not name.startswith('dn'):
            assert positives == 3 * (3 if kind in (*GROUPED, 'rfdetr') else 1)
            assert len(labels) == 12 * positives
    means = [x.mean_positive.mean.item() for x in models.rankings(model).values()]
    assert all(means)


@all_of([*DETRS, *YOLO])
def test_the_librarys_own_loss_is_reproduced(kind):
    """With its point-wise loss in place: matching, IoU, normalisation and weights are stock."""
    if kind in YOLO:
        loss = SoftBCE()
    elif kind in ('Deimv2', 'LibreDEIM'):
        loss = MALLoss(gamma=2.0)
    elif kind in DENOISING or kind in AUTHORS:
        loss = VarifocalLoss()
    elif kind in FOCAL:
        loss = QualityFocalLoss(use_iou=False, alpha=0.25)
    else:
        loss = IABCELoss()
    # transformers 4 ranks the denoising queries in the last layer, too.
    config = {} if FIVE or kind not in DENOISING else {'num_denoising': 0}
    if kind == 'DFine' and not FIVE:
        pytest.skip('transformers 4 has no auxiliary losses without denoising')
    stock, model = build(kind, **config), ranked(kind, loss, **config)
    dtype = torch.float32 if kind in SINGLE else torch.float64
    gradients, results = [], []
    for each in (stock, model):
        found = run(kind, each.to(dtype), dtype)
        if each is model and kind in FINE:
            loss_fgl = found.parts.pop('loss_fgl')
            found.total = found.total - loss_fgl
            assert found.parts.pop('loss_ddf') == 0
            # By boxes alone those of a small D-FINE ran into one bin.
            edges = model.model.decoder.bbox_embed[-1].layers[-1].weight
            (grad,) = torch.autograd.grad(loss_fgl, edges, retain_graph=True)
            assert grad.abs().sum() > 0
        found.total.backward()
        gradients.append({k: p.grad for k, p in each.named_parameters() if p.grad is not None})
        parts = {re.sub('vfl|mal', 'ranking', key): loss for key, loss in found.parts.items()}
        parts.pop('class_error', None)
        results.append({**parts, 'total': found.total})
    torch.testing.assert_close(*results[::-1], rtol=1e-6, atol=1e-7)
    # Rounding of float32 goes with the largest numbers that are added up.
    largest = max(float(x.abs().max()) for x in gradients[0].values())
    atol = 1e-7 if dtype == torch.float64 else 1e-6 * largest
    torch.testing.assert_close(*gradients[::-1], rtol=1e-6, atol=atol)


@all_of(DETRS, FAST)
@pytest.mark.parametrize('quality', [0.0, 0.9])
def test_layers_in_one_call_are_those_one_by_one(kind, quality):
    results = []
    for together in (True, False):
        model = ranked(kind, StableAPLoss(quality=quality)).to(dtype_of(kind))
        if not together:
            spy(model)
        found = run(kind, model, dtype_of(kind))
        found.total.backward()
        state = {key: x for key, x in model.state_dict().items() if '.rankings.' in key}
        gradients = {k: p.grad for k, p in model.named_parameters() if p.grad is not None}
        results.append((found.parts, state, gradients))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-4 if kind in FINE else 1e-6)


@every_shared
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_a_batch_without_boxes_and_half_precision(kind, dtype):
    model = ranked(kind)
    with torch.autocast('cpu', dtype=dtype):
        full, empty = (run(kind, model, boxes=boxes) for boxes in (True, False))
    for name in models.rankings(model):
        key = key_of(kind, name)
        assert full.parts[key].dtype == torch.float32
        assert full.parts[key] > 0
        # Denoising queries are made from boxes.
        assert empty.parts.get(key, 0) == 0
    (full.total + empty.total).backward()
    for parameter in model.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


def by_box(images):
    """The detections of each image in the order of their labels and boxes."""
    weights = torch.tensor([1.0, 0.7, 0.5, 0.3])
    orders = [(x['boxes'] @ weights + 1000 * x['labels']).argsort() for x in images]
    return [{k: v[order] for k, v in x.items()} for x, order in zip(images, orders)]


def class_loss(kind, model):
    """That of the scores shown, and the share of pairs with the positive above the negative."""
    model = copy.deepcopy(model).train()
    calls = spy(model)
    with torch.no_grad():
        found = run(kind, model)
    name = 'last' if 'last' in calls else next(iter(calls))
    scores, labels, _ = calls[name][1]
    is_positive = torch.nn.functional.one_hot(labels, CLASSES + 1)[:, :CLASSES].bool()
    above = scores[is_positive][:, None] > scores[~is_positive]
    return found.parts[key_of(kind, name)], above.float().mean()


@every_shared
def test_trains_predicts_is_saved_and_leaves(kind):
    model = ranked(kind)
    before, _ = class_loss(kind, model)
    # At a higher rate all scores of RT-DETR become equal, and their order is that of rounding.
    models.train(kind, model, STEPS.get(kind, 20), 1e-4 if kind in DENOISING else 1e-3)
    after, above = class_loss(kind, model)
    assert after < 0.9 * before
    assert above > 0.8
    images, _ = batch()
    shown = models.predict(kind, model, images)
    state = model.state_dict()
    fresh = ranked(kind, seed=1)
    fresh.load_state_dict(state)
    copies = [fresh, copy.deepcopy(model)]
    if kind in TORCHVISION:
        # After a step transformers' models have hooks that cannot be pickled.
        copies.append(pickle.loads(pickle.dumps(model)))
    for again in copies:
        assert again.state_dict().keys() == state.keys()
        torch.testing.assert_close(models.predict(kind, again, images), shown, rtol=0, atol=0)
    # Without mmrank the stock class predicts the same.
    left = remove_ranking_loss(model)
    stock = build(kind, seed=1)
    assert {type(x) for x in left.modules()} == {type(x) for x in stock.modules()}
    stock.load_state_dict(left.state_dict())
    found = models.predict(kind, stock, images)
    # The bias of the stock layer is rounded otherwise, which may swap equal scores: each box is
    # found again with its score and label, and both lists fall.
    torch.testing.assert_close(by_box(found), by_box(shown), rtol=1e-4, atol=1e-4)
    assert all((x['scores'].diff() <= 0).all() for x in found + shown)
    assert run(kind, left.train()).total.isfinite()


@all_of(['LTDETR'])
def test_lightly_train_exports_its_own_model(kind):
    """The weights that it writes load where mmrank is not, and are centred."""
    model = ranked(kind)
    before = build(kind).get_export_state_dict()
    models.rankings(model)['last'].mean_positive.mean.fill_(-3.0)
    exported = model.get_export_state_dict()
    assert exported.keys() == before.keys()
    moved = [key for key in before if not torch.equal(exported[key], before[key])]
    assert moved == [f'decoder.dec_score_head.{models.LAYERS - 1}.bias']
    assert models.rankings(model)


def spread_scores(layer, args):
    """Forward pre-hook: weights by which the scores differ by about 1."""
    std = args[0].std() * layer.weight[0].numel() ** 0.5
    torch.nn.init.normal_(layer.weight, std=1 / float(std))


@every_shared
def test_scores_become_probabilities(kind):
    model, images = ranked(kind), batch()[0]
    hooks = []
    for layer, _, _ in centred_layers(model):
        hooks.append(layer.register_forward_pre_hook(spread_scores))
    models.predict(kind, model, images)
    for hook in hooks:
        hook.remove()
    for loss in models.rankings(model).values():
        loss.mean_positive.mean.fill_(-3.0)
    before = models.predict(kind, model, images)
    scores = torch.cat([x['scores'] for x in before])
    place = scores.argsort().argsort()
    # Of the upper half four of five are right, of the lower half one.
    hits = (place % 5 > 0) == (2 * place > len(scores))
    if kind in ('FCOS', 'FasterRCNN', 'MaskRCNN', 'rfdetr'):
        with pytest.raises(UserError, match=r'more than the scores of a layer.*calibrate\.py'):
            show_probabilities(model, scores, hits)
        return
    for wrong, fault in (
        ((scores, ~hits), 'the scores fall with the hits'),
        ((scores, hits[1:]), 'are right. Fix: .*some right and some not'),
        ((scores, hits | True), 'some right and some not'),
        ((scores.logit(), hits), 'scores reach from .* Fix: what the model shows'),
    ):
        with pytest.raises(UserError, match=fault):
            show_probabilities(model, *wrong)
    show_probabilities(model, scores, hits)
    found = models.predict(kind, model, images)
    shown = torch.cat([x['scores'] for x in found])
    torch.testing.assert_close(shown.mean(), hits.float().mean(), rtol=0, atol=0.02)
    both = torch.stack([x.sort().values.double().logit() for x in (scores, shown)])
    assert torch.corrcoef(both)[0, 1] > 0.999
    left = models.predict(kind, remove_ranking_loss(model), images)
    torch.testing.assert_close(by_box(left), by_box(found), rtol=1e-4, atol=1e-4)


# A score of FCOS is the root of that of the class times that of the place.
@all_of([kind for kind in KINDS if kind != 'FCOS'], FAST)
def test_the_mean_positive_is_shown_as_half(kind):
    model, images = ranked(kind), batch()[0]
    if kind.endswith('RCNN'):
        # A softmax moves by less where classes share a box.
        model.roi_heads.box_predictor.cls_score.bias.data[2:] = -20
    raw = models.predict(kind, model, images)
    for loss in models.rankings(model).values():
        loss.mean_positive.mean.fill_(-3.0)
        loss.mean_positive.num_updates.fill_(1)
    shown = models.predict(kind, model, images)
    before, after = (torch.cat([x['scores'] for x in y]).max().logit() for y in (raw, shown))
    torch.testing.assert_close(after - before, torch.tensor(3.0), rtol=1e-3, atol=0)


@all_of([*TORCHVISION, *models.TRANSFORMERS], [])
def test_the_blocks_of_the_page(kind, capsys):
    """Typed out, with another name where the block says so."""
    name = 'retinanet' if kind in TORCHVISION else "'RTDetr'"
    own = kind.lower() if kind in TORCHVISION else f"'{kind}'"
    page = PAGES / 'users' / 'other_detectors.md'
    (block,) = [x for x in blocks(page, 'python') if f'= {name}' in x or f'.{name}' in x]
    exec(block.replace(name, own, 1).replace('range(20)', 'range(2)'), {})
    assert len(capsys.readouterr().out.splitlines()) == 2


def _step(rank, kind, own):
    # RF-DETR calls dropout as a function.
    config = {'dropout': 0.0, **({'num_denoising': 0} if kind in (*DENOISING, *AUTHORS) else {})}
    dtype = dtype_of(kind)
    model = ranked(kind, StableAPLoss(momentum=0.5), **config).to(dtype)
    for module in model.modules():
        if isinstance(module, (_BatchNorm, torch.nn.Dropout)):
            module.eval()
    if kind.endswith('RCNN'):
        # All boxes instead of random ones.
        model.roi_heads.fg_bg_sampler.batch_size_per_image = 2000
    images, targets = batch(dtype)
    found = models.compute(kind, model, images[own[rank]], [targets[i] for i in own[rank]])
    keys = [key_of(kind, name) for name in models.rankings(model)]
    loss = sum(found.parts[key] for key in keys)
    loss.backward()
    means = [x.mean_positive.mean for x in models.rankings(model).values()]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [loss, *means, torch.cat([x.flatten() for x in gradients])]


@pytest.mark.slow
@pytest.mark.processes
@every
def test_two_ranks_equal_one_process(kind):
    # Both have images without boxes as well as one with. Of one image the CPU's batch norm may
    # return a wrong gradient (torch 2.12, where the gradient that it gets is transposed).
    ranks = run_on_ranks(_step, 2, kind, [[0, 2], [1, 2, 2]])
    *expected, gradient = _step(0, kind, [[0, 2, 1, 2, 2]])
    for *found, _ in ranks:
        torch.testing.assert_close(found, [x.detach() for x in expected])
    # DistributedDataParallel averages.
    averaged = (ranks[0][-1] + ranks[1][-1]) / 2
    torch.testing.assert_close(averaged, gradient, rtol=1e-3, atol=1e-5)


@every
def test_messages(kind):
    model = build(kind)
    with pytest.raises(UserError, match='has no ranking loss'):
        remove_ranking_loss(model)
    with pytest.raises(
        UserError, match=f'which has {CLASSES} classes. Fix: StableAPLoss.num_classes={CLASSES}'
    ):
        use_ranking_loss(model, StableAPLoss(num_classes=80))
    if kind not in ('RetinaNet', 'FCOS'):
        with pytest.raises(UserError, match='replaces the box loss'):
            use_ranking_loss(model, ALRPLoss())
    if kind not in TORCHVISION:
        with pytest.raises(UserError, match='balance_boxes=True is not supported'):
            use_ranking_loss(model, StableAPLoss(), balance_boxes=True)
    keys = model.state_dict().keys()
    with pytest.raises(UserError, match='has a ranking loss already'):
        use_ranking_loss(use_ranking_loss(model, StableAPLoss()), StableAPLoss())
    assert remove_ranking_loss(model).state_dict().keys() == keys


@all_of(['YOLO11'])
def test_a_model_that_its_trainer_builds_again_is_warned_of(kind):
    from ultralytics import YOLO

    with pytest.warns(UserWarning, match=r'YOLO\.train builds another model.*Fix: train\('):
        use_ranking_loss(YOLO(f'{kind.lower()}n.yaml').model, StableAPLoss())


LOGITS = torch.randn(2, 10, 3, generator=torch.Generator().manual_seed(0))


NO_LABELS = torch.zeros(2, 10)


@pytest.mark.parametrize(
    ('make', 'labels', 'loss', 'message'),
    [
        (ClassPart, torch.eye(4)[[3] * 20].view(2, 10, 4), StableAPLoss(), 'labels'),
        (ClassPart.of_targets, NO_LABELS, StableAPLoss(), 'targets must'),
        (ClassPart, NO_LABELS, GradedAPLoss(), 'requires the boxes'),
        (ClassPart, NO_LABELS, GradedAPLoss, 'the class GradedAPLoss'),
        (ClassPart, NO_LABELS, InfoNCELoss(), 'loss=InfoNCELoss'),
    ],
)
def test_what_a_class_part_refuses(make, labels, loss, message):
    with pytest.raises(UserError, match=f'{message}.*Fix: '):
        make(LOGITS, labels).loss(loss)


def test_targets_of_a_broken_box_show_in_the_loss():
    targets = torch.zeros(2, 10, 3)
    targets[0, 0, 1] = torch.nan
    assert ClassPart.of_targets(LOGITS, targets).loss(GradedAPLoss()).isnan()
    assert ClassPart(LOGITS, torch.zeros(2, 10)).loss(StableAPLoss()) > 0


@all_of(KINDS, FAST)
def test_labels_and_boxes_of_another_library(kind):
    model = use_ranking_loss(build(kind), StableAPLoss())
    images, targets = batch()
    # Counted from 0 in an R-CNN, from 1 elsewhere, or beyond the last class.
    for shift in (-1, CLASSES):
        shifted = [dict(t, labels=t['labels'] + shift) for t in targets]
        with pytest.raises(UserError, match='labels of a batch are .* Fix: number the classes'):
            models.compute(kind, model, images, shifted)
    if kind not in TORCHVISION:
        in_pixels = [dict(t, boxes=t['boxes'] * models.SIZE) for t in targets]
        with pytest.raises(UserError, match='in fractions of the image'):
            models.compute(kind, model, images, in_pixels)
    remove_ranking_loss(model)
    assert not model._forward_pre_hooks
    assert not model._forward_pre_hooks_with_kwargs
