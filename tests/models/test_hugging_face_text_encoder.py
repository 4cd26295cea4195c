"""The adapter with transformers itself; models are made here, none fetched."""

import json

import pytest
import torch

from mmrank.errors import UserError
from mmrank.registry import MODELS

transformers = pytest.importorskip(
    'transformers', reason='transformers, which is optional, is missing'
)

WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', 'cat', 'dog', 'red', 'car']
TEXTS = ['a cat', 'a red car', 'dog', 'a red dog a red cat a red car']
SIZES = dict(
    bert=lambda: transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    ),
    distilbert=lambda: transformers.DistilBertConfig(
        vocab_size=len(WORDS), dim=16, n_layers=2, n_heads=2, hidden_dim=32
    ),
)


@pytest.fixture(params=SIZES)
def folder(request, tmp_path):
    (tmp_path / 'vocab.txt').write_text('\n'.join(WORDS))
    tokenizer = transformers.BertTokenizer(str(tmp_path / 'vocab.txt'))
    tokenizer.save_pretrained(tmp_path)
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(SIZES[request.param]())
    model.save_pretrained(tmp_path)
    return tmp_path


def encoder(folder, **kwargs):
    torch.manual_seed(0)
    config = dict(type='mmrank.HuggingFaceTextEncoder', name_or_path=str(folder), max_length=6)
    net = MODELS.build({**config, **kwargs})
    net.init_weights()
    return net.eval()


def states_of(folder, text):
    """(tokens, 16) of one text, by the words themselves."""
    ids = [2, *(WORDS.index(x) for x in text.split()[:4]), 3]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0]


def test_states_are_those_of_the_saved_model(folder):
    rows = [states_of(folder, text) for text in TEXTS]
    first = encoder(folder)
    assert first.out_channels == 16
    with torch.no_grad():
        torch.testing.assert_close(first(TEXTS), torch.stack([x[0] for x in rows]))
    assert first([]).shape == (0, 16)


def test_weights_of_another_model_are_refused(folder):
    weights = folder / 'model.safetensors'
    safetensors = pytest.importorskip('safetensors.torch')
    found = safetensors.load_file(weights)
    lacking = {key: x for key, x in found.items() if 'mbedding' not in key}
    safetensors.save_file(lacking, weights, metadata={'format': 'pt'})
    with pytest.raises(UserError, match=r'lack \d of the model.*mbedding.*Fix: '):
        encoder(folder)


def test_code_of_the_folder_is_not_run(folder, monkeypatch):
    """Not even where somebody answers the question of transformers with yes."""
    ran = folder / 'ran'
    (folder / 'own.py').write_text(f'open({str(ran)!r}, "w")\nclass Own: pass\n')
    config = json.loads((folder / 'config.json').read_text())
    names = ('AutoConfig', 'AutoModel', 'AutoTokenizer')
    config.update(model_type='own', auto_map=dict.fromkeys(names, 'own.Own'))
    (folder / 'config.json').write_text(json.dumps(config))
    monkeypatch.setattr('builtins.input', lambda *_: 'y')
    with pytest.raises(ValueError, match='trust_remote_code'):
        encoder(folder)
    assert not ran.exists()
