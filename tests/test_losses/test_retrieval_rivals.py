"""The registered rivals in classification and in retrieval."""

import pytest
import torch
from random_batches import one_vs_rest, rows_with_background
from torch import nn

from mmrank.functional import (
    auc_loss,
    blackbox_ap_loss,
    hap_loss,
    listwise_ap_loss,
    ndcg_loss,
    recall_at_k_loss,
    smooth_ap_loss,
)
from mmrank.losses import EmbeddingBatch
from mmrank.registry import MODELS

CLASSES = 3


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
    config = dict(type=f'mmrank.{name}', **LOSSES[name][1])
    return MODELS.build({**config, **kwargs})


def images(n=30, seed=0, classes=5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=g)
    return nn.functional.normalize(x), labels


@pytest.mark.parametrize('name', LOSSES)
class TestEveryLoss:
    def test_flatten_is_one_list(self, name):
        logits, target = rows_with_background(60, CLASSES)
        lists, settings = LOSSES[name]
        expected = lists(
            logits.reshape(1, -1), one_vs_rest(logits, target).reshape(1, -1), **settings
        )
        torch.testing.assert_close(build(name)(logits, target), expected[0])

    def test_every_image_is_a_query(self, name):
        x, labels = images()
        labels[-1] = 99
        lists, settings = LOSSES[name]
        each = lists(
            x @ x.t(), labels[:, None] == labels, mask=~torch.eye(30, dtype=torch.bool), **settings
        )
        assert each[-1] == 0
        loss = build(name, loss_weight=2.0)
        got = loss.embedding_loss(EmbeddingBatch.of_one_batch(x, labels))
        torch.testing.assert_close(got, 2 * each.sum() / 29)

    def test_sigmoid_ranks_probabilities(self, name):
        logits, target = rows_with_background(60, CLASSES)
        torch.testing.assert_close(
            build(name, activation='sigmoid')(logits, target), build(name)(logits.sigmoid(), target)
        )
