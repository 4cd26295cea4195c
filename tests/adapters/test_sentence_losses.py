"""Losses for the trainer of sentence-transformers."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import normalize

from mmrank.adapters import (
    CrossEncoderRankingLoss,
    SaveLossState,
    SentenceContrastLoss,
    SentenceInBatchLoss,
    SentenceRetrievalLoss,
)
from mmrank.errors import UserError
from mmrank.losses import (
    BimodalISogCLRLoss,
    CLIPLoss,
    EmbeddingBatch,
    InBatchLoss,
    InfoNCELoss,
    ISogCLRLoss,
    LambdaLoss,
    NDCGLoss,
    SmoothAPLoss,
    StableAPLoss,
)

st = pytest.importorskip('sentence_transformers')

WORDS = [f'word{i}' for i in range(24)]
#: Six topics of four words; a text is two words of its topic.
TEXTS = [
    f'word{4 * t + a} word{4 * t + b}'
    for t in range(6)
    for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))
]
TOPICS = torch.arange(6).repeat_interleave(4)
COSINES = dict(tau=0.1, score_range=(-1.0, 1.0), score_penalty=0.0)


def sentence_model():
    """A bag of words and a linear layer: nothing to download."""
    from sentence_transformers.sentence_transformer.modules import BoW, Dense

    torch.manual_seed(0)
    modules = [BoW(WORDS), Dense(len(WORDS), 6, bias=False)]
    return st.SentenceTransformer(modules=modules, device='cpu')


def features(model, *columns):
    return [model.preprocess(list(texts)) for texts in columns]


def in_double(columns):
    return [{**x, 'sentence_embedding': x['sentence_embedding'].double()} for x in columns]


def pairs():
    """Anchors, and the next text of the same topic."""
    return TEXTS, [TEXTS[4 * (i // 4) + (i + 1) % 4] for i in range(24)]


def gradients(model, value):
    return torch.autograd.grad(value, [*model.parameters()])[0]


def compare(model, found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    a, b = gradients(model, found), gradients(model, expected)
    assert b.abs().sum() > 0
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-15)


@pytest.fixture
def model():
    return sentence_model().double()


def embed(model, column):
    return model(dict(column))['sentence_embedding']


@pytest.mark.parametrize(
    'loss',
    [InfoNCELoss(tau=0.05, bimodal=True), CLIPLoss(), ISogCLRLoss(24), BimodalISogCLRLoss(24)],
    ids=lambda x: type(x).__name__,
)
def test_contrastive_losses(model, loss):
    columns = in_double(features(model, *pairs()))
    rows = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    direct, wrapped = copy.deepcopy(loss), SentenceContrastLoss(model, loss)
    for _ in range(2):  # the second with a state
        views = [embed(model, x) for x in columns]
        compare(model, wrapped(columns, rows), direct(*views, rows))
    # The state of the rows that the labels named.
    for key, value in direct.state_dict().items():
        assert torch.equal(loss.state_dict()[key], value), key
    if loss.keeps_samples:
        with pytest.raises(UserError, match=r"add_column\('label'"):
            wrapped(columns, None)
    else:
        assert wrapped(columns, None).isfinite()


@pytest.mark.parametrize(
    'loss',
    [StableAPLoss(6, mode='per_class', **COSINES), SmoothAPLoss(tau=0.05)],
    ids=lambda x: type(x).__name__,
)
def test_retrieval_of_classes(model, loss):
    columns = in_double(features(model, TEXTS))
    wrapped = SentenceRetrievalLoss(model, loss)
    direct = copy.deepcopy(loss)
    rows = normalize(embed(model, columns[0]))
    expected = direct.embedding_loss(EmbeddingBatch.of_one_batch(rows, TOPICS))
    compare(model, wrapped(columns, TOPICS), expected)


@pytest.mark.parametrize(
    ('topics', 'relevant'),
    # With topics all documents of the topic are relevant.
    [(None, torch.eye(24, dtype=torch.bool)), (TOPICS, TOPICS[:, None] == TOPICS)],
    ids=['pairs', 'topics'],
)
def test_retrieval_of_documents_with_hard_negatives(model, topics, relevant):
    columns = in_double(features(model, *pairs(), TEXTS[::-1]))
    q, d, n = (normalize(embed(model, x)) for x in columns)
    positive = torch.cat([relevant, torch.zeros(24, 24, dtype=torch.bool)], 1)
    scores = q @ torch.cat([d, n]).t()
    expected = StableAPLoss(**COSINES).loss_of_lists(scores, positive, ~positive)
    wrapped = SentenceRetrievalLoss(model, StableAPLoss(**COSINES))
    compare(model, wrapped(columns, topics), expected)


def test_in_batch_losses_know_the_pairs(model):
    queries, documents = torch.arange(24), torch.arange(24) % 5
    label = torch.stack([queries, documents], 1)
    columns = in_double(features(model, *pairs()))
    wrapped = SentenceInBatchLoss(model, InBatchLoss(pointwise='logistic'), label.tolist())
    direct = InBatchLoss(pointwise='logistic')
    direct.set_pairs(queries, documents, (24, 5))
    views = [embed(model, x) for x in columns]
    compare(model, wrapped(columns, label), direct(*views, queries, documents))
    with pytest.raises(UserError, match='a pair of integers for each row'):
        wrapped(columns, queries)


@pytest.mark.parametrize('size', [None, 5])
def test_gradients_of_a_loss_go_as_those_of_the_model_have_gone(size):
    """A trainer zeroes the model alone; parts of a batch, and another loss of the model."""
    model = sentence_model()
    losses = [SentenceContrastLoss(model, CLIPLoss(tau=x), mini_batch_size=size) for x in (0.1, 1)]
    taus = [x.loss.log_tau for x in losses]
    columns = features(model, *pairs())
    for _ in range(2):
        losses[0](columns).backward()
    twice = taus[0].grad.clone()
    model.zero_grad()
    losses[0](columns).backward()
    torch.testing.assert_close(2 * taus[0].grad, twice)
    model.zero_grad()
    losses[1](columns).backward()
    assert taus[0].grad is None
    assert taus[1].grad != 0


def test_the_state_of_a_checkpoint_in_another_folder(tmp_path):
    wrapped = SentenceContrastLoss(sentence_model(), BimodalISogCLRLoss(24))
    callback, there = SaveLossState(wrapped), tmp_path / 'checkpoint-4'

    def start(folder, step=4, resume=None):
        args = SimpleNamespace(output_dir=str(folder), resume_from_checkpoint=resume)
        callback.on_train_begin(args, SimpleNamespace(global_step=step), None)

    there.mkdir()
    saved = {key: value.clone() for key, value in wrapped.loss.state_dict().items()}
    torch.save(saved, there / SaveLossState.FILE)
    start(tmp_path / 'other', step=0)
    with pytest.raises(UserError, match=r'checkpoint-4.mmrank_loss.pt .* resume_from_checkpoint='):
        start(tmp_path / 'other')
    for where in ((tmp_path,), (tmp_path / 'other', 4, str(there))):
        for buffer in wrapped.loss.buffers():
            buffer.zero_()
        start(*where)
        for key, value in wrapped.loss.state_dict().items():
            assert torch.equal(value, saved[key])


@pytest.mark.parametrize(
    ('wrapper', 'loss', 'labels'),
    [
        (SentenceContrastLoss, ISogCLRLoss(24), torch.arange(24)),
        (SentenceRetrievalLoss, StableAPLoss(mode='flatten'), None),
    ],
    ids=['iSogCLR', 'StableAP'],
)
@pytest.mark.parametrize('size', [5, 100])
def test_mini_batches_change_no_gradient(wrapper, loss, labels, size):
    found = []
    for chunks in ({}, {'mini_batch_size': size}):
        model, calls = sentence_model(), []
        wrapped = wrapper(model, copy.deepcopy(loss), **chunks).train()
        model.register_forward_pre_hook(lambda _, args, calls=calls: calls.append(1))
        value = wrapped(features(model, *pairs()), labels)
        found.append((value, gradients(model, value), wrapped.loss.state_dict()))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)
    # Two columns of five chunks, of which all but the last are embedded twice.
    assert len(calls) == (2 * (5 + 4) if size == 5 else 2)


@pytest.fixture
def cross_encoder(tmp_path):
    """A BERT of one layer and 16 units, with random weights."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS]
    (tmp_path / 'vocab.txt').write_text('\n'.join(vocabulary))
    BertTokenizerFast(str(tmp_path / 'vocab.txt')).save_pretrained(tmp_path)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=len(vocabulary), num_labels=1, **sizes)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    return st.CrossEncoder(str(tmp_path), device='cpu')


def lists_of_documents():
    """Queries, documents of each, and their levels: of one topic, of its neighbour, of another."""
    queries = TEXTS[::8]
    documents = [TEXTS[:9], TEXTS[4:6], TEXTS[10:]]
    topics = torch.arange(24) // 4
    parts = [topics[:9], topics[4:6], topics[10:]]
    labels = [(2 - (own - topic).abs()).clamp(min=0) for own, topic in zip(parts, (0, 2, 4))]
    return [queries, documents], labels


RANKERS = {
    'NDCG': (NDCGLoss(tau=0.1), 1),
    'LambdaLoss': (LambdaLoss(), 1),
    'graded stable AP': (StableAPLoss(quality=1.0, mean_mode='off'), 2),
    'SmoothAP': (SmoothAPLoss(tau=0.1, quality=0.0), None),
}


@pytest.mark.parametrize('name', RANKERS)
def test_a_cross_encoder_ranks_the_documents_of_each_query(cross_encoder, name):
    loss, scale = RANKERS[name]
    inputs, labels = lists_of_documents()
    labels = [(x > 0).long() if scale is None else x / scale for x in labels]
    pairs = [(query, text) for query, texts in zip(*inputs) for text in texts]
    flat, group = torch.cat(labels), torch.arange(3).repeat_interleave(torch.tensor([9, 2, 14]))
    graded = dict(quality=flat) if scale == 2 else {}
    cross_encoder.eval()  # no dropout
    with torch.no_grad():
        found = CrossEncoderRankingLoss(cross_encoder, loss)(inputs, labels)
        scores = cross_encoder(cross_encoder.preprocess(pairs))['scores'][:, 0]
        expected = loss(scores, flat > 0 if scale != 1 else flat, group=group, **graded)
    torch.testing.assert_close(found, expected)
    assert expected > 0
    whole = gradients(cross_encoder, CrossEncoderRankingLoss(cross_encoder, loss)(inputs, labels))
    parts = CrossEncoderRankingLoss(cross_encoder, loss, mini_batch_size=4)(inputs, labels)
    torch.testing.assert_close(gradients(cross_encoder, parts), whole, rtol=1e-4, atol=1e-6)
    for wrong in (labels[:1] + labels, torch.ones(3)):
        with pytest.raises(UserError, match='labeled-list'):
            CrossEncoderRankingLoss(cross_encoder, loss)(inputs, wrong)
