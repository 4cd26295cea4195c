"""The image-text model in training and evaluation; tokens, prompts and text encoders."""

import sys

import pytest
import torch
from mmengine.structures import BaseDataElement
from small_models import CONTRAST_HEAD, IN_BATCH_HEAD, dual_encoder

from mmrank.losses import InBatchLoss
from mmrank.models.multimodal.image_text_dual_encoder import ZeroShotPrompts
from mmrank.models.multimodal.text_encoders import _byte_tokens
from mmrank.registry import MODELS

TEXTS = ['a cat', 'two dogs', 'a red car', 'the sea', 'a cat on grass']


def build(loss='CLIPLoss', **settings):
    torch.manual_seed(0)
    return MODELS.build(dual_encoder(loss, **settings))


def batch(n=5, **fields):
    g = torch.Generator().manual_seed(0)
    images = torch.randn(n, 3, 16, 16, generator=g)
    samples = []
    for i in range(n):
        info = dict(sample_idx=i, image_id=i, text_id=i)
        info |= {k: v[i] for k, v in fields.items() if k != 'text'}
        sample = BaseDataElement(metainfo=info)
        texts = fields.get('text', TEXTS)
        if texts[i] is not None:
            sample.set_field(texts[i], 'text')
        samples.append(sample)
    return images, samples


def test_the_loss_knows_the_samples():
    loss = dict(type='mmrank.BimodalISogCLRLoss', num_samples=9)
    model = build(loss)
    images, samples = batch(3, sample_idx=[7, 2, 5])
    model(images, samples, mode='loss')
    seen = model.head.loss_module.image_temperature.log_s.isfinite()
    assert seen.nonzero()[:, 0].tolist() == [2, 5, 7]
    # Captions of one image share a state, and are no negatives.
    model = build(loss, head=dict(CONTRAST_HEAD, id_key='image_id'))
    model(*batch(3, image_id=[4, 4, 1]), mode='loss')
    state = model.head.loss_module.text_temperature
    assert state.log_s.isfinite().nonzero()[:, 0].tolist() == [1, 4]


def test_pairs_of_one_caption_are_positives_of_each_other():
    model = build(head=dict(CONTRAST_HEAD, label_key='text_id'))
    images, samples = batch(text_id=[3, 0, 3, 1, 3])
    found = model(images, samples, mode='loss')['loss']
    views = model(images), model.embed_texts(TEXTS)
    labels = torch.tensor([3, 0, 3, 1, 3])
    torch.testing.assert_close(found, model.head.loss_module(*views, labels=labels))
    assert found != model.head.loss_module(*views)


def test_prediction():
    names = ('cat', 'dog', 'car')
    model = build(zero_shot=dict(classes=[*names])).eval()
    texts = [['a cat', 'two cats'], 'a dog', None, ['sea'], []]
    images, samples = batch(text=texts)
    found = model(images, samples, mode='predict')
    expected = model(images)
    torch.testing.assert_close(expected.norm(dim=1), torch.ones(5))
    assert (build(normalize=False)(images).norm(dim=1) - 1).abs().min() > 1e-3
    for text, sample, row in zip(texts, found, expected):
        torch.testing.assert_close(sample.image_feature, row)
        if not text:
            assert 'text_feature' not in sample
            continue
        text = [text] if isinstance(text, str) else text
        torch.testing.assert_close(sample.text_feature, model.embed_texts(text))
    rows = model.embed_texts([f'a photo of a {x}.' for x in names])
    for sample, row in zip(found, expected @ rows.t()):
        torch.testing.assert_close(sample.pred_score, row.softmax(0))
        assert sample.pred_label.tolist() == [int(row.argmax())]


def test_classes_are_embedded_anew_after_training():
    model = build(zero_shot=dict(classes=['cat', 'dog'])).eval()
    before = model(*batch(), mode='predict')[0].pred_score
    again = model(*batch(), mode='predict')[0].pred_score
    assert torch.equal(before, again)
    state = {k: -v for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    after = model(*batch(), mode='predict')[0].pred_score
    assert not torch.allclose(before, after)
    model.text_projection.weight.data = torch.ones(6, 8)  # no new version
    model.train()
    model.eval()
    last = model(*batch(), mode='predict')[0].pred_score
    assert not torch.allclose(after, last)


def test_in_batch_head_gives_images_and_captions_as_entities():
    # Image 0 has captions 0 and 1, and caption 1 also image 2.
    rows, cols = [0, 0, 1, 2, 2], [0, 1, 2, 1, 3]
    images, samples = batch(image_id=rows, text_id=cols)
    rows, cols = torch.tensor(rows), torch.tensor(cols)
    setting = dict(mode='unbiased', pointwise='logistic')
    loss = dict(setting, type='mmrank.InBatchLoss')
    model = build(loss, head=dict(IN_BATCH_HEAD, scale=2.0), normalize=False)
    model.head.loss_module.set_pairs(rows, cols, (3, 4))
    got = model(images, samples, mode='loss')['loss']
    loss = InBatchLoss(**setting)
    loss.set_pairs(rows, cols, (3, 4))
    expected = loss(2 * model(images), model.embed_texts(TEXTS), rows, cols)
    torch.testing.assert_close(got, expected)


def test_bad_batches_are_refused():
    images, samples = batch(text=['a', ['b', 'c'], 'd', None, 'e'])
    with pytest.raises(ValueError, match=r"2 of 5 .* \['b', 'c'\]"):
        build()(images, samples, mode='loss')
    images, samples = batch()
    with pytest.raises(ValueError, match=r'features \(images, 7\)'):
        build(image_channels=7)(images)
    for sample in samples:
        sample.pop('sample_idx')
    with pytest.raises(ValueError, match='no sample_idx; .*meta_keys'):
        build()(images, samples, mode='loss')
    with pytest.raises(ValueError, match="mode='train' is unknown"):
        build()(images, samples, mode='train')
    model = build()
    model.head = None
    with pytest.raises(ValueError, match='no head'):
        model(images, samples, mode='loss')


def test_tokens_are_bytes_between_start_and_end():
    texts = ['ab', '', 'né', 'x' * 40]
    tokens = _byte_tokens(texts, 9)
    assert tokens.shape == (4, 9)
    for text, row in zip(texts, tokens.tolist()):
        expected = [1, *(3 + x for x in text.encode()[:7]), 2]
        assert row == expected + [0] * (9 - len(expected))
    assert _byte_tokens([], 9).shape == (0, 2)


def transformer(**kwargs):
    torch.manual_seed(0)
    config = dict(channels=16, num_layers=2, num_heads=2, max_length=24)
    return MODELS.build(dict(type='mmrank.TextTransformer', **{**config, **kwargs}))


def test_a_text_does_not_see_its_neighbours():
    encoder = transformer()
    texts = ['a cat', 'a much longer caption', '']
    for mode in (True, False):
        encoder.train(mode)
        together = encoder(texts)
        assert together.shape == (3, encoder.out_channels)
        for text, row in zip(texts, together):
            torch.testing.assert_close(encoder([text])[0], row)
    a, b = transformer()(['tac', 'cat'])  # the order of letters matters
    assert (a - b).abs().max() > 1e-4


def test_prompts():
    prompts = ZeroShotPrompts(['sea_lion', 'cat'], ['a {}.', 'the {}'])
    assert prompts.texts == ['a sea lion.', 'the sea lion', 'a cat.', 'the cat']
    rows = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    half = 2**-0.5
    expected = torch.tensor([[half, half], [1, 0]])
    torch.testing.assert_close(prompts.class_rows(rows, True), expected)
    mean = torch.tensor([[0.5, 0.5], [1, 0]])
    torch.testing.assert_close(prompts.class_rows(rows, False), mean)
    pytest.importorskip('mmpretrain')
    assert ZeroShotPrompts('cifar10').texts[1] == 'a photo of a automobile.'
    assert len(ZeroShotPrompts('imagenet').classes) == 1000


@pytest.mark.parametrize(
    ('classes', 'templates', 'message'),
    [
        ('cifar', ['a {}'], "classes='cifar' is unknown"),
        (['cat'], ['a cat'], 'one {}'),
        (['cat'], ['{} {}'], 'one {}'),
        (['cat'], [], 'must not be empty'),
        ([], ['a {}'], 'must not be empty'),
    ],
)
def test_bad_prompts_are_refused(classes, templates, message):
    with pytest.raises(ValueError, match=message):
        ZeroShotPrompts(classes, templates)


def test_hugging_face_missing_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, 'transformers', None)
    with pytest.raises(ImportError, match='pip install .transformers<5'):
        MODELS.build(dict(type='mmrank.HuggingFaceTextEncoder', name_or_path='bert'))
