"""Lists of its own on each of two gloo processes, and one state."""

import pytest
import torch
from gloo_processes import run_on_ranks

from mmrank.losses import SOPRCLoss

pytestmark = pytest.mark.processes

SETTING = dict(
    num_classes=5, prior=0.2, tau1=1.0, tau2=0.05, lam1=0.2, lam2=0.3, score_range=(-9.0, 9.0)
)
LOCAL = [dict(mode='per_class'), {}]
PARTS = [slice(0, 5), slice(5, 7)]


def _lists_of_all_ranks():
    g = torch.Generator().manual_seed(9)
    scores = torch.rand(7, 12, generator=g)
    kind = torch.randint(0, 3, (7, 12), generator=g)
    return scores, kind, torch.tensor([4, 0, 0, 4, 2, 0, 2])


def _rank_own_queries(rank):
    """Lists that differ by rank, 5 and 2 of them: three tensors of each setting."""
    results = []
    for kwargs in LOCAL:
        scores, kind, rows = (x[PARTS[rank]] for x in _lists_of_all_ranks())
        loss = SOPRCLoss(scope='local', **{**SETTING, **kwargs})
        for _ in range(2):
            value = loss.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        results += [value, loss.score_vector.vector, loss.score_vector.num_updates]
    return results


def test_local_queries_share_the_vectors_of_their_classes():
    ranks = run_on_ranks(_rank_own_queries, 2)
    scores, kind, rows = _lists_of_all_ranks()
    for case, kwargs in enumerate(LOCAL):
        setting = {**SETTING, **kwargs}
        whole = SOPRCLoss(**setting)
        for _ in range(2):
            whole.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        for results, part in zip(ranks, PARTS):
            value, vector, num_updates = results[3 * case :][:3]
            assert torch.equal(num_updates, whole.score_vector.num_updates)
            torch.testing.assert_close(vector, whole.score_vector.vector)
            alone = SOPRCLoss(**setting)
            alone.load_state_dict(whole.state_dict())
            alone.eval()
            expected = alone.loss_of_lists(
                scores[part], kind[part] == 0, kind[part] == 1, list_classes=rows[part]
            )
            torch.testing.assert_close(value, expected)
