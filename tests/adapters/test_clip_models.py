"""CLIP models of transformers and open_clip on contrastive losses."""

import math

import pytest
import torch
from docs_blocks import PAGES, all_blocks, output_of
from torch.nn.functional import normalize

from mmrank.adapters import OpenCLIPLoss, use_contrastive_loss
from mmrank.losses import BimodalISogCLRLoss, CLIPLoss, SigLIPLoss, SogCLRLoss

transformers = pytest.importorskip('transformers')

PAIRS = 16
LOSSES = {
    'iSogCLR': lambda: BimodalISogCLRLoss(PAIRS, rho=2.0, tau_init=0.05, tau_max=0.5),
    'SogCLR': lambda: SogCLRLoss(PAIRS, tau=0.05, bimodal=True),
    'SigLIP': SigLIPLoss,
    'CLIP': CLIPLoss,
}
every_loss = pytest.mark.parametrize('name', LOSSES)


def clip(kind='CLIP'):
    torch.manual_seed(0)
    tower = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    text = dict(vocab_size=40, max_position_embeddings=8, eos_token_id=39, projection_size=16)
    config = getattr(transformers, f'{kind}Config')(
        text_config=tower | text,
        vision_config=tower | dict(image_size=16, patch_size=8),
        **(dict(projection_dim=8) if kind == 'CLIP' else {}),
    )
    return getattr(transformers, f'{kind}Model')(config)


def batch():
    """Pairs as the collator of the trainer gives them."""
    g = torch.Generator().manual_seed(1)
    pixels = torch.randn(PAIRS, 3, 16, 16, generator=g)
    words = torch.randint(38, (PAIRS, 8), generator=g)
    words[:, -1] = 39
    return dict(pixel_values=pixels, input_ids=words, labels=torch.arange(PAIRS))


def gradients(model, value):
    named = {key: x for key, x in model.named_parameters() if x.requires_grad}
    found = torch.autograd.grad(value, [*named.values()], allow_unused=True)
    return {key: x for key, x in zip(named, found) if x is not None}


@pytest.mark.parametrize('kind', ['CLIP', 'Siglip'])
@every_loss
def test_gradient_is_that_of_a_call_by_hand(name, kind):
    model, direct = clip(kind), LOSSES[name]()
    inputs = batch()
    index = inputs['labels']
    plain = model(**{k: x for k, x in inputs.items() if k != 'labels'})
    # The temperature is the model's, and so is the bias where there is one.
    for key, value in dict(log_scale=model.logit_scale, log_tau=-model.logit_scale).items():
        if name in ('SigLIP', 'CLIP') and key in dict(direct.named_parameters()):
            del direct._parameters[key]
            setattr(direct, key, value)
    if name == 'SigLIP' and kind == 'Siglip':
        del direct._parameters['logit_bias']
        direct.logit_bias = model.logit_bias
    expected = direct(plain.image_embeds, plain.text_embeds, index)
    expected = expected, gradients(model, expected)
    use_contrastive_loss(model, LOSSES[name]())
    out = model(**inputs)
    assert out.loss is out['loss'] is out[0]
    found = gradients(model, out.loss)
    of_model = {k: x for k, x in found.items() if k in expected[1]}
    torch.testing.assert_close((out.loss, of_model), expected, rtol=1e-6, atol=1e-6)
    rest = {k: x for k, x in found.items() if k not in expected[1]}
    assert all(
        k == 'contrastive_loss.loss.logit_bias' or x.abs().sum() == 0 for k, x in rest.items()
    )
    # As stock where no loss is asked for.
    assert model(**{k: x for k, x in inputs.items() if k != 'labels'}).loss is None


def test_the_stock_class_loads_what_is_saved(tmp_path):
    """With the outputs of the model that was trained; the state of the loss is left over."""
    model = use_contrastive_loss(clip(), LOSSES['iSogCLR']())
    model(**batch()).loss.backward()
    model.save_pretrained(tmp_path)
    stock, told = type(clip()).from_pretrained(tmp_path, output_loading_info=True)
    assert not told['missing_keys']
    assert all(x.startswith('contrastive_loss.') for x in told['unexpected_keys'])
    inputs = {k: x for k, x in batch().items() if k != 'labels'}
    expected = model.eval()(**inputs).logits_per_image
    torch.testing.assert_close(stock.eval()(**inputs).logits_per_image, expected)


@every_loss
def test_the_calling_form_of_open_clip(name):
    g = torch.Generator().manual_seed(0)
    views = [normalize(torch.randn(PAIRS, 8, generator=g)).requires_grad_() for _ in range(2)]
    log_scale, bias = (torch.tensor(x, requires_grad=True) for x in (2.0, -4.0))
    # What a model of open_clip returns: its loop calls loss(**outputs, output_dict=True).
    outputs = dict(
        image_features=views[0],
        text_features=views[1],
        logit_scale=log_scale.exp(),
        logit_bias=bias,
    )
    loss, index = OpenCLIPLoss(LOSSES[name]()), torch.arange(PAIRS)
    found = loss(**outputs, output_dict=True, sample_idx=index)['contrastive_loss']
    settings = {'SigLIP': dict(tau=math.exp(-2)), 'CLIP': dict(tau=math.exp(-2))}
    direct = type(loss.loss)(**settings[name]) if name in settings else LOSSES[name]()
    if name == 'SigLIP':
        direct.logit_bias.data.fill_(-4.0)
    expected = direct(*views, index)
    torch.testing.assert_close(found, expected)
    parameters = [*direct.parameters()]
    by_hand = torch.autograd.grad(expected, [*views, *parameters])
    for_model = dict(log_scale=log_scale, log_tau=log_scale, logit_bias=bias)
    inputs = [for_model[key] for key, _ in direct.named_parameters()]
    of_model = torch.autograd.grad(found, [*views, *inputs, log_scale])
    signs = [1, 1, *(-1 if key == 'log_tau' else 1 for key, _ in direct.named_parameters())]
    for ours, theirs, sign in zip(of_model, by_hand, signs):
        torch.testing.assert_close(ours, sign * theirs.view_as(ours))
    assert name in settings or of_model[-1] == 0  # no parameter without a gradient
    # Without output_dict, and without an index where the loss needs none.
    if name in settings:
        torch.testing.assert_close(loss(*outputs.values()), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('page', 'mark', 'package'),
    [
        ('image_text', 'use_contrastive_loss', 'datasets'),
        ('image_text', 'OpenCLIPLoss', 'open_clip'),
        ('sentence_transformers', 'InformationRetrievalEvaluator', 'datasets'),
    ],
)
def test_blocks_of_the_pages(page, mark, package, tmp_path):
    pytest.importorskip(package)
    found = [x for _, x in all_blocks(PAGES / 'users' / f'{page}.md') if mark in x]
    (tmp_path / 'typed.py').write_text(found[0])
    output_of(['python typed.py'], tmp_path)
