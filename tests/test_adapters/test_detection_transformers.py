"""RT-DETR, RT-DETRv2 and D-FINE of transformers on ranking losses."""

import copy
import pickle
import re
from pathlib import Path

import pytest
import torch
from gloo_processes import run_on_ranks
from torch.nn.utils import clip_grad_norm_

from mmrank.adapters import load_ranking_state, remove_ranking_loss, use_ranking_loss
from mmrank.errors import UserError
from mmrank.losses import ALRPLoss, RankSortLoss, StableAPLoss, VarifocalLoss

transformers = pytest.importorskip('transformers')

ROOT = Path(__file__).resolve().parents[2]
CLASSES, LAYERS = 3, 2
KINDS = ['RTDetr', 'RTDetrV2', 'DFine']
#: They differ in nothing that the adapter has to do with in training.
TRAINED = [
    'RTDetr',
    pytest.param('RTDetrV2', marks=pytest.mark.slow),
    pytest.param('DFine', marks=pytest.mark.slow),
]


def detector(kind, seed=0):
    """A model of random weights, two decoder layers, 12 queries."""
    from transformers import RTDetrResNetConfig

    torch.manual_seed(seed)
    width = 16
    own = dict(d_model=width)
    if kind == 'DFine':
        own = dict(d_model=width, lqe_hidden_dim=8)
    config = getattr(transformers, f'{kind}Config')(
        backbone_config=RTDetrResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, width, width, width],
            depths=[1, 1, 1, 1],
            layer_type='basic',
            out_features=['stage2', 'stage3', 'stage4'],
        ),
        freeze_backbone_batch_norms=False,
        encoder_in_channels=[width] * 3,
        encoder_hidden_dim=width,
        encoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_in_channels=[width] * 3,
        decoder_ffn_dim=32,
        decoder_attention_heads=2,
        decoder_layers=LAYERS,
        **own,
        num_queries=12,
        num_denoising=10,
        num_labels=CLASSES,
        hidden_expansion=1.0,
        depth_mult=1.0,
    )
    return getattr(transformers, f'{kind}ForObjectDetection')(config)


def batch(dtype=torch.float32, boxes=True):
    g = torch.Generator().manual_seed(1)
    pixels = torch.rand(3, 3, 64, 64, generator=g).to(dtype)
    true = torch.rand(4, 4, generator=g).to(dtype) * 0.3 + 0.3
    labels = [
        dict(class_labels=torch.tensor([0, 2, 1]), boxes=true[:3]),
        dict(class_labels=torch.tensor([1]), boxes=true[3:]),
        dict(class_labels=torch.zeros(0).long(), boxes=true[:0]),
    ]
    if not boxes:
        labels = [labels[2]] * 3
    return pixels, labels


def without_denoising(function):
    """What later versions of transformers do in the last layer."""

    def fixed(logits, labels, device, pred_boxes, config, *args, **kwargs):
        last = slice(-config.num_queries, None)
        if not transformers.__version__.startswith('5'):
            logits, pred_boxes = logits[:, last], pred_boxes[:, last]
        return function(logits, labels, device, pred_boxes, config, *args, **kwargs)

    return fixed


class Spy:
    """Notes what each ranking loss of a model is called with."""

    def __init__(self, model):
        self.calls = {}
        for name, loss in model.loss_function.rankings.items():
            loss.register_forward_pre_hook(self.note(name), with_kwargs=True)

    def note(self, name):
        def hook(module, args, kwargs):
            assert name not in self.calls, 'two calls of one layer'
            self.calls[name] = (*args, kwargs)

        return hook


@pytest.mark.parametrize('kind', KINDS)
def test_values_and_gradients_are_those_of_the_loss(kind):
    # The loss of D-FINE in transformers mixes dtypes in float64.
    dtype = torch.float32 if kind == 'DFine' else torch.float64
    model = detector(kind).to(dtype).train()
    stock = copy.deepcopy(model)
    loss = StableAPLoss()
    assert use_ranking_loss(model, loss) is model
    spy = Spy(model)
    pixels, labels = batch(dtype)
    torch.manual_seed(5)
    out = model(pixel_values=pixels, labels=labels)
    torch.manual_seed(5)
    stock.loss_function = without_denoising(stock.loss_function)
    plain = stock(pixel_values=pixels, labels=labels)

    names = ['last', *(f'{k}_{i}' for k in ('aux', 'dn') for i in range(2))]
    assert [*spy.calls] == names
    # Boxes and matching are stock, and so is what each loss is called.
    rename = {k: k.replace('vfl', 'ranking') for k in plain.loss_dict}
    assert out.loss_dict.keys() == {*rename.values()}
    for old, new in rename.items():
        if 'vfl' not in old:
            assert torch.equal(out.loss_dict[new], plain.loss_dict[old]), new

    # What is ranked: logits of one layer, never those of two.
    dn, queries = out.denoising_meta_values['dn_num_split']
    layers = out.intermediate_logits
    expected = {
        'last': out.logits,
        'aux_0': layers[:, 0, dn:],
        'aux_1': out.enc_topk_logits,
        'dn_0': layers[:, 0, :dn],
        'dn_1': layers[:, 1, :dn],
    }
    groups = out.denoising_meta_values['dn_num_group']
    positives = {'dn_0': 4 * groups, 'dn_1': 4 * groups}
    suffix = {name: '' if name == 'last' else f'_{name}' for name in names}
    for name in names:
        scores, target, told = spy.calls[name]
        logits = expected[name]
        if name == 'last':
            logits = logits[:, -queries:]
        assert torch.equal(scores, logits.flatten(0, 1)), name
        assert (target < CLASSES).sum() == positives.get(name, 4), name
        # The proposals of the encoder are not ranked.
        own = VarifocalLoss() if name == 'aux_1' else copy.deepcopy(loss)
        assert [*told] == ['avg_factor', *(['quality'] if name == 'aux_1' else [])]
        value = out.loss_dict[f'loss_ranking{suffix[name]}']
        found = torch.autograd.grad(value, scores, retain_graph=True)[0]
        leaf = scores.detach().requires_grad_()
        direct = own(leaf, target, **told)
        direct.backward()
        torch.testing.assert_close(value, direct, rtol=1e-12, atol=0)
        torch.testing.assert_close(found, leaf.grad, rtol=1e-12, atol=0)
        assert found.abs().sum() > 0
    # The matched queries carry the classes of their objects.
    target = spy.calls['last'][1].view(3, -1)
    assert sorted(target[0][target[0] < CLASSES].tolist()) == [0, 1, 2]
    assert target[1][target[1] < CLASSES].tolist() == [1]
    torch.testing.assert_close(out.loss, sum(out.loss_dict.values()))
    # Each ranking has its own state.
    rankings = model.loss_function.rankings.items()
    means = [ranking.mean_positive.mean.item() for name, ranking in rankings if name != 'aux_1']
    # In the first layer of D-FINE the second scores are at first equal.
    assert len(set(means)) == len(names) - 1 - (kind == 'DFine')
    assert loss.mean_positive.num_updates == 0


@pytest.mark.parametrize('kind', TRAINED)
def test_varifocal_is_the_loss_of_the_stock_model(kind):
    dtype = torch.float32 if kind == 'DFine' else torch.float64
    model = detector(kind).to(dtype).train()
    stock = copy.deepcopy(model)
    stock.loss_function = without_denoising(stock.loss_function)
    use_ranking_loss(model, VarifocalLoss())
    pixels, labels = batch(dtype)
    results = []
    for each in (model, stock):
        torch.manual_seed(5)
        out = each(pixel_values=pixels, labels=labels)
        out.loss.backward()
        gradients = [torch.zeros(1) if x.grad is None else x.grad for x in each.parameters()]
        losses = {key.replace('vfl', 'ranking'): x for key, x in out.loss_dict.items()}
        results.append((losses, gradients))
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)


def test_quality_is_the_iou_of_the_matched_boxes():
    model = use_ranking_loss(detector('RTDetr').train(), RankSortLoss())
    spy = Spy(model)
    pixels, labels = batch()
    out = model(pixel_values=pixels, labels=labels)
    _, target, told = spy.calls['last']
    target = target.view(3, -1)
    boxes = out.pred_boxes[:, -target.size(1) :]
    expected = []
    for image, query in (target < CLASSES).nonzero().tolist():
        truth = labels[image]
        at = truth['class_labels'].tolist().index(target[image, query])
        a, b = boxes[image, query], truth['boxes'][at]
        low = torch.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
        high = torch.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
        inter = (high - low).clamp(min=0).prod()
        expected.append(inter / (a[2:].prod() + b[2:].prod() - inter))
    torch.testing.assert_close(
        told['quality'], torch.stack(expected).detach(), rtol=1e-4, atol=1e-6
    )
    assert told['quality'].max() > 0.01
    assert not told['quality'].requires_grad


@pytest.mark.parametrize('kind', TRAINED)
def test_trains_predicts_and_is_saved(kind, tmp_path):
    model = use_ranking_loss(detector(kind).train(), StableAPLoss())
    pixels, labels = batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rankings, risks, losses = model.loss_function.rankings, [], []
    for _ in range(24):
        loss = model(pixel_values=pixels, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
        risks.append(rankings['dn_1'].diagnostics['risk'].item())
    assert losses[-1] < 0.9 * losses[0]
    assert sum(risks[-5:]) < 0.6 * sum(risks[:5])
    model.eval()
    with torch.no_grad():
        shown = model(pixel_values=pixels)
        with_loss = model(pixel_values=pixels, labels=labels)
        as_tuple = model(pixel_values=pixels, labels=labels, return_dict=False)
        # Raw scores: the state does not move in eval mode.
        model.loss_function.centre_scores = False
        raw = model(pixel_values=pixels).logits
        model.loss_function.centre_scores = True
    centre = rankings['last'].logit_centre()
    assert centre.abs() > 0.01
    torch.testing.assert_close(shown.logits, raw - centre)
    assert torch.equal(with_loss.logits, shown.logits)
    assert torch.equal(as_tuple[2], shown.logits)
    assert with_loss.loss.isfinite()
    processor = transformers.RTDetrImageProcessor()
    found = processor.post_process_object_detection(
        shown, threshold=0.0, target_sizes=[(64, 64)] * 3
    )
    best = (raw - centre).sigmoid().flatten(1).amax(1)
    torch.testing.assert_close(torch.stack([x['scores'].max() for x in found]), best)

    # The folder of save_pretrained, bit by bit.
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    again = load_ranking_state(use_ranking_loss(again, StableAPLoss()), tmp_path).eval()
    state = model.state_dict()
    assert sum('.rankings.' in key for key in state) > 5
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.state_dict().keys() == state.keys()
        for key, value in other.state_dict().items():
            assert torch.equal(value, state[key]), key
        with torch.no_grad():
            assert torch.equal(other(pixel_values=pixels).logits, shown.logits)

    # Without mmrank the stock class predicts the same.
    left = remove_ranking_loss(model)
    left.save_pretrained(tmp_path / 'stock')
    stock = type(model).from_pretrained(tmp_path / 'stock').eval()
    assert not any('rankings' in key for key in stock.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(
            stock(pixel_values=pixels).logits, shown.logits, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize('kind', ['RTDetr', 'DFine'])
def test_a_batch_without_boxes_and_half_precision(kind):
    model = use_ranking_loss(detector(kind).train(), StableAPLoss())
    with torch.autocast('cpu', dtype=torch.bfloat16):
        pixels, labels = batch()
        losses = model(pixel_values=pixels, labels=labels).loss_dict
        pixels, labels = batch(boxes=False)
        empty = model(pixel_values=pixels, labels=labels).loss_dict
    assert empty['loss_ranking'] == 0
    assert losses['loss_ranking'].dtype == torch.float32
    sum([*losses.values(), *empty.values()]).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all()


def test_the_block_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = use_ranking_loss(detector('RTDetr').train(), StableAPLoss())
    pixels, labels = batch()
    model(pixel_values=pixels, labels=labels)
    model.eval()
    with torch.no_grad():
        shown = model(pixel_values=pixels).logits
    text = (ROOT / 'docs/pages/users/other_detectors.md').read_text('utf-8')
    (block,) = re.findall(r'```python\n(# .*?)```', text, re.DOTALL)
    names = dict(
        model=model,
        RTDetrForObjectDetection=transformers.RTDetrForObjectDetection,
        StableAPLoss=StableAPLoss,
        use_ranking_loss=use_ranking_loss,
        load_ranking_state=load_ranking_state,
        remove_ranking_loss=remove_ranking_loss,
    )
    exec(block, names)
    assert names['model'] is not model
    plain = type(model).from_pretrained('work_dirs/plain').eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(pixel_values=pixels).logits, shown, rtol=1e-4, atol=1e-4)


def _step(rank, own):
    model = use_ranking_loss(detector('RTDetr').train(), StableAPLoss(momentum=0.5))
    pixels, labels = batch()
    at = own[rank]
    out = model(pixel_values=pixels[at], labels=labels[at])
    out.loss.backward()
    rankings = model.loss_function.rankings
    return [
        out.loss_dict['loss_ranking_aux_0'],
        *(rankings[name].mean_positive.mean for name in rankings if name != 'aux_1'),
    ]


@pytest.mark.slow
@pytest.mark.processes
def test_a_rank_without_boxes_takes_part_in_all_rankings():
    # The second rank has no boxes, so no denoising queries.
    first, second = run_on_ranks(_step, 2, [slice(0, 2), slice(2, 3)])
    for a, b in zip(first, second):
        torch.testing.assert_close(a, b)
    assert first[0] > 0
    assert all(mean != 0 for mean in first[1:])


def test_messages(tmp_path):
    model = detector('RTDetr')
    with pytest.raises(UserError, match='replaces the box loss'):
        use_ranking_loss(model, ALRPLoss())
    with pytest.raises(UserError, match='Fix: StableAPLoss.num_classes=3'):
        use_ranking_loss(model, StableAPLoss(num_classes=80))
    with pytest.raises(UserError, match='balance_boxes=True is not'):
        use_ranking_loss(model, StableAPLoss(), balance_boxes=True)
    with pytest.raises(UserError, match='has no ranking loss'):
        remove_ranking_loss(model)
    with pytest.raises(UserError, match='has no ranking loss'):
        load_ranking_state(model, tmp_path)
    model.save_pretrained(tmp_path)
    use_ranking_loss(model, StableAPLoss())
    with pytest.raises(UserError, match='has a ranking loss already'):
        use_ranking_loss(model, StableAPLoss())
    with pytest.raises(UserError, match='is not that of this ranking loss'):
        load_ranking_state(model, tmp_path)
