"""Batches of embeddings, and stable AP's means over their queries."""

import pytest
import torch
from score_lists import joined
from torch.nn.functional import normalize

from mmrank.functional import stable_ap_loss
from mmrank.losses import EmbeddingBatch, StableAPLoss

CLASSES = 5


def _batch(n, seed, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = normalize(torch.randn(n, 6, generator=g, dtype=dtype), dim=1)
    return x, torch.randint(0, CLASSES, (n,), generator=g)


@pytest.mark.parametrize('mean_scope', ['global', 'per_class'])
@pytest.mark.parametrize('mean_mode', ['plain', 'off'])
def test_means_of_the_queries(mean_scope, mean_mode):
    loss = StableAPLoss(
        num_classes=CLASSES,
        mode='per_class',
        mean_scope=mean_scope,
        mean_mode=mean_mode,
        momentum=0.25,
        rho='batch',
        tau=0.1,
        score_range=(-1, 1),
        score_penalty=0,
    )
    means = {}
    for step in range(3):
        x, labels = _batch(11, step)
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
        got = loss.embedding_loss(EmbeddingBatch.of_one_batch(x, labels))
        torch.testing.assert_close(got, torch.stack(expected).mean(), rtol=1e-5, atol=1e-6)
