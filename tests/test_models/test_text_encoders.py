"""Byte tokenizer, small transformer, prompts, and the optional encoders."""

import sys

import pytest
import torch

from mmrank.models.multimodal.image_text_dual_encoder import ZeroShotPrompts
from mmrank.models.multimodal.text_encoders import _byte_tokens
from mmrank.registry import MODELS


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
    assert not torch.allclose(together[0], together[1])


def test_order_of_the_letters_matters():
    a, b = transformer()(['tac', 'cat'])
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


def test_known_classes():
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


def hugging_face(**kwargs):
    config = dict(type='mmrank.HuggingFaceTextEncoder', name_or_path='bert')
    return MODELS.build({**config, **kwargs})


def test_hugging_face_missing_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, 'transformers', None)
    with pytest.raises(ImportError, match='pip install .transformers<5'):
        hugging_face()
