"""Losses of pytorch-metric-learning behind PMLLoss."""

import sys

import pytest
import torch
from subjects import with_gradient

from mmrank.losses import EmbeddingBatch, EmbeddingLoss, PMLLoss, SumLoss
from mmrank.registry import MODELS

pml = pytest.importorskip('pytorch_metric_learning')
from pytorch_metric_learning import losses, miners  # noqa: E402

CONFIGS = {
    'contrastive': dict(type='ContrastiveLoss', pos_margin=0.1, neg_margin=1),
    'triplet': dict(type='TripletMarginLoss', margin=0.3),
    'multi_similarity': dict(type='MultiSimilarityLoss', alpha=2, beta=10),
    'fast_ap': dict(type='FastAPLoss', num_bins=7),
    'nt_xent': dict(type='NTXentLoss', temperature=0.2),
    'circle': dict(type='CircleLoss', m=0.4, gamma=8),
    **{
        f'pnp_{variant}': dict(type='PNPLoss', variant=variant, b=3, alpha=2, anneal=0.2)
        for variant in losses.PNPLoss.VARIANTS
    },
}


HARD = dict(type='BatchHardMiner')
CONTRASTIVE = dict(type='ContrastiveLoss')
TRIPLET = dict(type='TripletMarginLoss')
#: Configs, other settings, and the error.
REFUSED = [
    (dict(type='NCALoss'), {}, ValueError, 'from the labels alone'),
    (dict(type='SmoothAPLoss'), {}, ValueError, 'mmrank.SmoothAPLoss'),
    (dict(TRIPLET, swap=True), {}, ValueError, 'swap=True'),
    (dict(TRIPLET, triplets_per_anchor=5), {}, ValueError, 'per_anchor=5'),
    (dict(CONTRASTIVE, reducer=dict(type='PerAnchorReducer')), {}, ValueError, 'PerAnchorReducer'),
    (dict(type='Contrastive'), {}, KeyError, "loss.type='Contrastive' is not"),
    (dict(CONTRASTIVE, distance=dict(type='L2')), {}, KeyError, r"loss.distance.type='L2' is not"),
    ('triplet', dict(miner=dict(type='Hard')), KeyError, "miner.type='Hard' is not"),
    ({}, {}, TypeError, 'loss must be a module, a name'),
    (dict(CONTRASTIVE, bins=3), {}, TypeError, 'bins'),
    ('triplet', dict(scope='x'), ValueError, "scope='x' is unknown"),
    ('fast_ap', dict(miner=HARD), ValueError, 'Fix: remove the miner'),
    (
        dict(type='ProxyAnchorLoss', num_classes=4, embedding_size=5),
        dict(miner=HARD),
        ValueError,
        'Fix: remove the miner',
    ),
]


def build(name, **kwargs):
    config = CONFIGS[name] if isinstance(name, str) else name
    return MODELS.build(dict(type='mmrank.PMLLoss', loss=config, **kwargs))


def original(name):
    config = dict(CONFIGS[name])
    return getattr(losses, config.pop('type'))(**config)


def of_one_batch(loss, labels):
    """The loss of embeddings that search each other."""
    return lambda e: loss.embedding_loss(EmbeddingBatch.of_one_batch(e, labels))


def embeddings(n, seed=0, classes=4, dim=5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g, dtype=torch.float64)
    return x, torch.randint(classes, (n,), generator=g)


def with_memory(seed=0, batch=10, memory=14):
    """A batch that searches itself and a memory without gradient.

    Two entries of the memory are images of the batch.
    """
    x, labels = embeddings(batch, seed)
    old, old_labels = embeddings(memory, seed + 100)
    itself = torch.zeros(batch, batch + memory, dtype=torch.bool)
    itself[:, :batch].fill_diagonal_(True)
    for query, entry in ((2, 3), (7, 9)):
        old_labels[entry] = labels[query]
        itself[query, batch + entry] = True

    def make(leaf):
        return EmbeddingBatch(
            leaf, labels, torch.cat([leaf, old.to(leaf)]), torch.cat([labels, old_labels]), itself
        )

    return x, make


#: One of the losses of pairs, of triplets, and of each ranking: a gallery changes what these take.
OF_A_GALLERY = ('contrastive', 'triplet', 'fast_ap', 'pnp_Dq')


def definition(name, batch):
    """The loss by its formula, query by query."""
    unit = torch.nn.functional.normalize
    s = unit(batch.queries) @ unit(batch.gallery).t()
    d = (2 - 2 * s).clamp(min=1e-30).sqrt()
    same = batch.query_labels[:, None] == batch.gallery_labels
    pos, neg = same & ~batch.is_itself, ~same
    total = []
    if name == 'contrastive':
        for pairs, violation in ((pos, (d - 0.1).relu()), (neg, (1 - d).relu())):
            values = violation[pairs]
            total.append(values[values > 0].mean())
        return sum(total)
    for i in range(len(s)):
        if name == 'triplet':
            for p in pos[i].nonzero()[:, 0]:
                total.append((d[i, p] - d[i][neg[i]] + 0.3).relu())
        elif name == 'fast_ap' and pos[i].any():
            centres = torch.linspace(0, 4, 8, dtype=torch.float64)[:, None]
            share = (1 - (d[i].square() - centres).abs() / (4 / 7)).relu()
            own, every = share[:, pos[i]].sum(1), share[:, pos[i] | neg[i]]
            running = own.cumsum(0) / every.sum(1).cumsum(0).clamp(min=1e-30)
            total.append(1 - (own * running).sum() / pos[i].sum())
        elif name == 'pnp_Dq' and pos[i].any():
            above = torch.sigmoid((s[i][neg[i]] - s[i][pos[i]][:, None]) / 0.2).sum(1)
            total.append((1 - 1 / (1 + above) ** 2).mean())
    values = torch.cat([x.reshape(-1) for x in total])
    return values[values > 0].mean() if name == 'triplet' else values.mean()


@pytest.mark.parametrize('name', CONFIGS)
def test_a_plain_batch_is_the_original(name):
    x, labels = embeddings(24)
    expected = with_gradient(lambda e: original(name)(e, labels), x)
    loss = build(name)

    def ours(e):
        batch = EmbeddingBatch.of_one_batch(e, labels)
        if name.startswith('pnp'):
            batch.is_itself.zero_()  # the original counts the query as a positive
        return loss.embedding_loss(batch)

    got = with_gradient(ours, x)
    torch.testing.assert_close(got, expected)
    assert got[1].abs().sum() > 0


@pytest.mark.parametrize('name', OF_A_GALLERY)
def test_a_gallery_with_a_memory_is_the_definition(name):
    x, make = with_memory()
    expected = with_gradient(lambda e: definition(name, make(e)), x)
    loss = build(name)
    got = with_gradient(lambda e: loss.embedding_loss(make(e)), x)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)


def test_a_mined_batch_is_the_original():
    x, labels = embeddings(24)
    miner = miners.MultiSimilarityMiner(epsilon=0.2)
    loss = build('multi_similarity', miner=dict(type='MultiSimilarityMiner', epsilon=0.2))
    found = with_gradient(of_one_batch(loss, labels), x)
    plain = original('multi_similarity')
    expected = with_gradient(lambda e: plain(e, labels, miner(e, labels)), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ('miner', 'chosen'),
    [
        (dict(type='TripletMarginMiner', margin=0.1), lambda d: d[:, :, None] + 0.1 >= d[:, None]),
        (
            dict(type='PairMarginMiner', pos_margin=1, neg_margin=1.4),
            lambda d: (d > 1)[:, :, None] & (d < 1.4)[:, None],
        ),
    ],
)
def test_a_memory_is_mined_without_own_images(miner, chosen):
    x, make = with_memory()
    batch = make(x)
    unit = torch.nn.functional.normalize
    d = torch.cdist(unit(batch.queries), unit(batch.gallery))
    triplets = batch.is_positive()[:, :, None] & batch.is_negative()[:, None] & chosen(d)
    values = (d[:, :, None] - d[:, None] + 0.3).relu()[triplets]
    found = build('triplet', miner=miner).embedding_loss(batch)
    torch.testing.assert_close(found, values[values > 0].mean())


@pytest.mark.parametrize('loss', [losses.SupConLoss(), losses.PNPLoss(), losses.FastAPLoss()])
def test_a_module_is_its_name_and_its_config(loss):
    name = type(loss).__name__
    x, labels = embeddings(24)
    values = [EmbeddingLoss(PMLLoss(given))(x, labels) for given in (loss, name, dict(type=name))]
    assert values[0] == values[1] == values[2] > 0


def test_proxies_of_a_module_are_the_users():
    proxies = losses.NormalizedSoftmaxLoss(4, 5)
    loss = PMLLoss(proxies)
    assert next(loss.parameters()) is proxies.W
    assert loss.proxy_classes == 4
    assert PMLLoss(losses.ProxyNCALoss(4, 5)).proxy_classes == 4
    miner = miners.BatchHardMiner()
    assert PMLLoss(losses.TripletMarginLoss(), miner).miner is miner


def test_parts_are_configs():
    margins = dict(pos_margin=1, neg_margin=0.2)
    loss = build(
        dict(
            CONTRASTIVE,
            **margins,
            distance=dict(type='CosineSimilarity'),
            reducer=dict(type='MeanReducer'),
            embedding_regularizer=dict(type='LpRegularizer', p=2),
        )
    )
    x, labels = embeddings(12)
    expected = losses.ContrastiveLoss(
        **margins,
        distance=pml.distances.CosineSimilarity(),
        reducer=pml.reducers.MeanReducer(),
        embedding_regularizer=pml.regularizers.LpRegularizer(p=2),
    )
    torch.testing.assert_close(of_one_batch(loss, labels)(x), expected(x, labels))


@pytest.mark.parametrize('name', ['ProxyAnchorLoss', 'ProxyNCALoss', 'ArcFaceLoss'])
def test_proxies_are_those_of_the_package(name):
    loss = build(dict(type=name, num_classes=4, embedding_size=5))
    x, labels = embeddings(12)
    x = x.float()
    torch.testing.assert_close(of_one_batch(loss, labels)(x), loss.loss(x, labels))
    triplets = torch.tensor([0, 1]), torch.tensor([4, 5]), torch.tensor([1, 2])
    for more in (dict(indices_tuple=triplets), dict(ref_emb=x + 1, ref_labels=labels)):
        for search in (EmbeddingLoss(loss), EmbeddingLoss(SumLoss([loss]))):
            with pytest.raises(ValueError, match='would have no effect. Fix'):
                search(x, labels, **more)


@pytest.mark.parametrize(('config', 'settings', 'error', 'message'), REFUSED)
def test_what_cannot_be_right_is_refused(config, settings, error, message):
    with pytest.raises(error, match=message):
        build(config, **settings)


def test_absent_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'pytorch_metric_learning.losses', None)
    with pytest.raises(ImportError, match='pip install'):
        build('triplet')
