"""Losses of embeddings: batches, stable AP's means over queries, rivals, SupAP and ROADMAP."""

import pytest
import torch
from score_lists import joined
from subjects import made_up, one_vs_rest, rows_with_background, with_gradient
from torch.nn.functional import normalize

from mmrank.functional import (
    auc_loss,
    blackbox_ap_loss,
    hap_loss,
    listwise_ap_loss,
    ndcg_loss,
    recall_at_k_loss,
    smooth_ap_loss,
    stable_ap_loss,
)
from mmrank.losses import EmbeddingBatch, EmbeddingLoss, ROADMAPLoss, StableAPLoss, SupAPLoss
from mmrank.registry import MODELS

CLASSES = 5


def images(n=30, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g, dtype=torch.float64)
    return normalize(x), torch.randint(CLASSES, (n,), generator=g)


@pytest.mark.parametrize('mean_scope', ['global', 'per_class'])
@pytest.mark.parametrize('mean_mode', ['plain', 'off'])
def test_means_of_the_queries(mean_scope, mean_mode):
    settings = dict(mean_scope=mean_scope, mean_mode=mean_mode, momentum=0.25)
    cosines = dict(rho='batch', tau=0.1, score_range=(-1, 1), score_penalty=0)
    loss = StableAPLoss(num_classes=CLASSES, mode='per_class', **settings, **cosines)
    means = {}
    for step in range(3):
        x, labels = images(11, step)
        queries = []
        for i, label in enumerate(labels.tolist()):
            same = (labels == label) & (torch.arange(11) != i)
            row = label if mean_scope == 'per_class' else 0
            if same.any():
                scores = x @ x[i]
                queries.append((row, scores[same], scores[labels != label]))
        for row in {r for r, *_ in queries}:
            mean = torch.cat([p for r, p, _ in queries if r == row]).mean()
            lam = 0.25 if row in means and mean_mode == 'plain' else 1.0
            means[row] = lam * mean + (1 - lam) * means.get(row, 0)
        expected = [
            stable_ap_loss(*joined(pos, neg), means[row], tau=0.1, bound=41.0)
            for row, pos, neg in queries
        ]
        found = loss.embedding_loss(EmbeddingBatch.of_one_batch(x, labels))
        torch.testing.assert_close(found, torch.stack(expected).mean(), rtol=1e-5, atol=1e-6)


RIVAL_CLASSES = 3


def _with_levels(loss):
    return lambda scores, is_positive, **kw: loss(scores, is_positive.long(), **kw)


LOSSES = {
    'SmoothAPLoss': (smooth_ap_loss, dict(tau=0.2)),
    'ListwiseAPLoss': (listwise_ap_loss, dict(num_bins=15, score_range=(-3.0, 3.0))),
    'BlackBoxAPLoss': (blackbox_ap_loss, dict(lam=2.0, margin=0.1)),
    'AUCLoss': (auc_loss, dict(surrogate='one_sided_huber', tau=0.5)),
    'HAPLoss': (_with_levels(hap_loss), dict(tau=0.1)),
    'NDCGLoss': (_with_levels(ndcg_loss), dict(tau=0.1)),
    'RecallAtKLoss': (recall_at_k_loss, dict(ks=(1, 4), tau=0.1)),
}


def build(name, **kwargs):
    return MODELS.build(dict(type=f'mmrank.{name}', **LOSSES[name][1], **kwargs))


@pytest.mark.parametrize('name', LOSSES)
def test_flatten_is_one_list(name):
    logits, target = rows_with_background(60, RIVAL_CLASSES)
    function, settings = LOSSES[name]
    labels = one_vs_rest(logits, target).flatten()
    torch.testing.assert_close(
        build(name)(logits, target), function(logits.flatten(), labels, **settings)
    )
    torch.testing.assert_close(
        build(name, activation='sigmoid')(logits, target), build(name)(logits.sigmoid(), target)
    )


@pytest.mark.parametrize('name', LOSSES)
def test_every_image_is_a_query(name):
    x, labels = images()
    labels[-1] = 99
    function, settings = LOSSES[name]
    others = ~torch.eye(30, dtype=torch.bool)
    each = function(x @ x.t(), labels[:, None] == labels, mask=others, **settings)
    assert each[-1] == 0
    found = build(name, loss_weight=2.0).embedding_loss(EmbeddingBatch.of_one_batch(x, labels))
    torch.testing.assert_close(found, 2 * each.sum() / 29)


LABELS = torch.arange(24) % 6


def made_up_images(noise):
    centres = made_up(6, 8, seed=1).double()
    return centres[LABELS] + noise * made_up(24, 8).double()


def lists(x):
    unit = normalize(x)
    for i in range(24):
        others = torch.arange(24) != i
        yield (unit @ unit[i])[others], (LABELS[i] == LABELS)[others]


def contrastive(x):
    pairs = [*lists(x)]
    scores = torch.cat([s for s, _ in pairs])
    same = torch.cat([p for _, p in pairs])
    parts = (0.9 - scores[same]).relu(), (scores[~same] - 0.6).relu()
    return sum(part.sum() / (part > 0).sum().clamp(min=1) for part in parts)


@pytest.mark.parametrize('noise', [0.1, 0.5, 1.0])
@pytest.mark.parametrize('lam', [0.0, 0.3, 1.0])
def test_roadmap(noise, lam):
    x = made_up_images(noise)

    def formula(x):
        ranked = torch.stack([hap_loss(s, own.long()) for s, own in lists(x)]).mean()
        return (1 - lam) * ranked + lam * contrastive(x)

    expected = with_gradient(formula, x)
    found = with_gradient(lambda x: EmbeddingLoss(ROADMAPLoss(lam))(x, LABELS), x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if lam == 0:
        found = with_gradient(lambda x: EmbeddingLoss(SupAPLoss())(x, LABELS), x)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_negatives_of_images_without_a_mate_count_in_the_margins():
    x, one = made_up_images(0.1)[:9], torch.arange(9)
    labels = torch.where(one < 2, 0, one)
    unit = normalize(x)
    scores, other = unit @ unit.t(), labels[:, None] != labels
    excess = (scores[other] - 0.6).relu()
    loss = EmbeddingLoss(ROADMAPLoss(lam=1.0))
    margin = (0.9 - scores[0, 1]).relu() + excess.sum() / (excess > 0).sum()
    torch.testing.assert_close(loss(x, labels), margin)
    assert loss(x[1:], one[1:]) > 0


def test_sup_ap_is_h_ap_of_the_finest_level():
    x = made_up_images(1.0)
    loss = EmbeddingLoss(SupAPLoss())
    assert loss(x, torch.stack([LABELS // 3, LABELS], 1)) == loss(x, LABELS)
    scores, labels = made_up(30), torch.arange(30) % 3 == 0
    torch.testing.assert_close(SupAPLoss()(scores, labels), hap_loss(scores, labels.long()))
