"""Lists of their own on each of two ranks with one state, and a detector on two ranks.

What ranks that share their lists keep to: test_registered_losses_distributed.py.
"""

from importlib.util import find_spec

import pytest
import torch
from gloo_processes import run_on_ranks
from rank_batches import share
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import SOPRCLoss, StableAPLoss

pytestmark = pytest.mark.processes

SIZES = (40, 23)
SOPRC = dict(
    num_classes=5, prior=0.2, tau1=1.0, tau2=0.05, lam1=0.2, lam2=0.3, score_range=(-9.0, 9.0)
)
SOPRC_MODES = [dict(mode='per_class'), {}]
SOPRC_SIZES = (5, 2)


def scores_of_all_ranks():
    """Scores of three classes, and the class of each row; 3 is the background."""
    g = torch.Generator().manual_seed(5)
    scores = torch.randn(sum(SIZES), 3, generator=g, dtype=torch.float64)
    return scores, torch.randint(0, 12, (sum(SIZES),), generator=g).clamp(max=3)


def lists_of_all_ranks():
    """Scores of seven lists, whether each is a positive, a negative or left out, and classes."""
    g = torch.Generator().manual_seed(9)
    scores = torch.rand(7, 12, generator=g)
    kind = torch.randint(0, 3, (7, 12), generator=g)
    return scores, kind, torch.tensor([4, 0, 0, 4, 2, 0, 2])


def stable_ap_on_rank(rank):
    scores, target = (x[share(SIZES, rank)] for x in scores_of_all_ranks())
    loss = StableAPLoss(3, scope='local', t=0.0, rho='batch')
    auto = StableAPLoss(3, scope='local', t=0.0)
    auto(scores, target)
    return [loss(scores, target), loss.mean_positive.mean, auto.imbalance.mean]


def soprc_on_rank(rank):
    """Three tensors of each setting."""
    results = []
    for mode in SOPRC_MODES:
        scores, kind, rows = (x[share(SOPRC_SIZES, rank)] for x in lists_of_all_ranks())
        loss = SOPRCLoss(scope='local', **{**SOPRC, **mode})
        for _ in range(2):
            value = loss.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        results += [value, loss.score_vector.vector, loss.score_vector.num_updates]
    return results


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        from small_heads import STABLE_AP, build_head

        self.head = build_head('RetinaHead', STABLE_AP).double()

    def forward(self, images):
        """Losses of the chosen images of the shared batch."""
        from small_heads import make_inputs

        features, truths, metas = make_inputs()
        outs = self.head([x[images].double() for x in features])
        losses = self.head.loss_by_feat(
            *outs, [truths[i] for i in images], [metas[i] for i in images]
        )
        return losses['loss_cls'], sum(losses['loss_bbox'])


def detector_gradients(model, images):
    loss_cls, loss_bbox = model(images)
    (loss_cls + loss_bbox).backward()
    head = getattr(model, 'module', model).head
    grads = [p.grad for p in head.parameters()]
    return [loss_cls, head.loss_cls.loss.mean_positive.mean, *grads]


def on_rank(rank):
    found = {'stable AP': stable_ap_on_rank(rank), 'SOPRC': soprc_on_rank(rank)}
    if find_spec('mmdet'):
        model = DistributedDataParallel(Detector())
        found['detector'] = detector_gradients(model, [rank])
    return found


@pytest.fixture(scope='module')
def ranks():
    """What two ranks found, in one start of the processes: it costs most of the time."""
    return run_on_ranks(on_rank, 2)


def test_stable_ap_ranks_per_process_but_shares_the_state(ranks):
    """With t = 0 the loss does not depend on the mean positive score.

    The average of the risk is that of the ranks, each of which has a list.
    """
    scores, target = scores_of_all_ranks()
    whole = StableAPLoss(3, t=0.0)
    whole(scores, target)
    risks = []
    for rank, found in enumerate(ranks):
        loss, mean, _ = found['stable AP']
        part = share(SIZES, rank)
        alone = StableAPLoss(3, t=0.0, rho='batch')
        torch.testing.assert_close(loss, alone(scores[part], target[part]))
        torch.testing.assert_close(mean, whole.mean_positive.mean)
        risks.append(alone.diagnostics['risk'])
    for found in ranks:
        average = found['stable AP'][2].double()
        torch.testing.assert_close(average, torch.stack(risks).mean().reshape(1))


def test_soprc_shares_the_vectors_of_the_classes(ranks):
    scores, kind, rows = lists_of_all_ranks()
    for case, mode in enumerate(SOPRC_MODES):
        setting = {**SOPRC, **mode}
        whole = SOPRCLoss(**setting)
        for _ in range(2):
            whole.loss_of_lists(scores, kind == 0, kind == 1, list_classes=rows)
        for rank, found in enumerate(ranks):
            value, vector, num_updates = found['SOPRC'][3 * case :][:3]
            assert torch.equal(num_updates, whole.score_vector.num_updates)
            torch.testing.assert_close(vector, whole.score_vector.vector)
            alone = SOPRCLoss(**setting)
            alone.load_state_dict(whole.state_dict())
            alone.eval()
            part = share(SOPRC_SIZES, rank)
            expected = alone.loss_of_lists(
                scores[part], kind[part] == 0, kind[part] == 1, list_classes=rows[part]
            )
            torch.testing.assert_close(value, expected)


def test_a_detector_equals_one_process(ranks):
    """Two images with 2 and 1 boxes, one on each rank; boxes included."""
    pytest.importorskip('mmdet')
    expected = detector_gradients(Detector(), [0, 1])
    for found in ranks:
        for a, b in zip(found['detector'], expected):
            torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-9)
