"""Two gloo processes give what one process gives.

Starting processes costs most of the time, so one pair runs all cases.
"""

import pytest
import torch
from gloo_processes import run_on_ranks
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from mmrank.losses import SOPRCLoss

pytestmark = pytest.mark.processes

CLASSES = 5
SETTING = dict(
    num_classes=CLASSES, prior=0.2, tau1=1.0, tau2=0.05, lam1=0.2, lam2=0.3, score_range=(-9.0, 9.0)
)


def _data(n, no_positives_after=None):
    g = torch.Generator().manual_seed(5)
    features = torch.randn(n, 8, generator=g, dtype=torch.float64)
    target = torch.randint(0, 2 * CLASSES, (n,), generator=g)
    target = target.clamp(max=CLASSES)
    if no_positives_after is not None:
        target[no_positives_after:] = CLASSES
    return features, target


class _Classifier(nn.Module):
    def __init__(self, mode):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, CLASSES).double()
        self.loss = SOPRCLoss(mode=mode, **SETTING)

    def forward(self, features, target):
        return self.loss(self.linear(features), target)


class _Retriever(nn.Module):
    """All images are queries, against the images of this rank."""

    def __init__(self, world_size=1):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 6).double()
        self.loss = SOPRCLoss(mode='per_class', **SETTING)
        self.world_size = world_size

    def forward(self, features, labels):
        own = normalize(self.linear(features), dim=1)
        queries, query_labels = own, labels
        ids = own_ids = torch.arange(len(own))
        if self.world_size > 1:
            queries = torch.cat(all_gather(own))
            query_labels = torch.cat(all_gather(labels))
            own_ids = ids + len(own) * torch.distributed.get_rank()
            ids = torch.arange(len(queries))
        same = query_labels[:, None] == labels
        itself = ids[:, None] == own_ids
        return self.loss.rank(queries @ own.t(), same & ~itself, ~same, list_classes=query_labels)


def _train(model, features, target, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(features, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model = getattr(model, 'module', model)
    state = model.loss.score_vector
    return [
        torch.tensor(losses),
        model.linear.weight,
        model.linear.weight.grad,
        state.vector,
        state.num_updates,
    ]


CLASSIFICATION = [((40, 25), 'flatten', 40), ((31, 17), 'per_class', None)]
IMAGES_PER_RANK = 11
LOCAL = [dict(mode='per_class'), {}]
PARTS = [slice(0, 5), slice(5, 7)]


def _images():
    features, labels = _data(2 * IMAGES_PER_RANK)
    return features, labels.clamp(max=CLASSES - 1)


def _lists_of_all_ranks():
    g = torch.Generator().manual_seed(9)
    scores = torch.rand(7, 12, generator=g)
    kind = torch.randint(0, 3, (7, 12), generator=g)
    return scores, kind, torch.tensor([4, 0, 0, 4, 2, 0, 2])


def _classify(rank, sizes, mode, empty_after):
    features, target = _data(sum(sizes), empty_after)
    begin = sum(sizes[:rank])
    part = slice(begin, begin + sizes[rank])
    model = DistributedDataParallel(_Classifier(mode))
    return _train(model, features[part], target[part])


def _retrieve(rank):
    features, labels = _images()
    begin = rank * IMAGES_PER_RANK
    part = slice(begin, begin + IMAGES_PER_RANK)
    model = DistributedDataParallel(_Retriever(2))
    return _train(model, features[part], labels[part])


def _rank_own_queries(rank, kwargs):
    """Lists that differ by rank, 5 and 2 of them."""
    scores, kind, rows = (x[PARTS[rank]] for x in _lists_of_all_ranks())
    loss = SOPRCLoss(scope='local', **{**SETTING, **kwargs})
    for _ in range(2):
        value = loss.rank(scores, kind == 0, kind == 1, list_classes=rows)
    return [value, loss.score_vector.vector, loss.score_vector.num_updates]


def _all_cases(rank):
    results = []
    for case in CLASSIFICATION:
        results += _classify(rank, *case)
    results += _retrieve(rank)
    for kwargs in LOCAL:
        results += _rank_own_queries(rank, kwargs)
    return results


@pytest.fixture(scope='module')
def ranks():
    """Results of each rank: five tensors a training, three a local case."""
    return run_on_ranks(_all_cases, 2)


def _assert_equal(results, expected):
    assert len(results) == len(expected)
    for a, b in zip(results, expected):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('case', [0, 1])
def test_classification_equals_one_process(ranks, case):
    sizes, mode, empty_after = CLASSIFICATION[case]
    expected = _train(_Classifier(mode), *_data(sum(sizes), empty_after))
    for results in ranks:
        _assert_equal(results[5 * case : 5 * case + 5], expected)


def test_retrieval_over_all_queries_equals_one_process(ranks):
    expected = _train(_Retriever(), *_images())
    for results in ranks:
        _assert_equal(results[10:15], expected)


@pytest.mark.parametrize('case', [0, 1])
def test_local_queries_share_the_vectors_of_their_classes(ranks, case):
    setting = {**SETTING, **LOCAL[case]}
    scores, kind, rows = _lists_of_all_ranks()
    whole = SOPRCLoss(**setting)
    for _ in range(2):
        whole.rank(scores, kind == 0, kind == 1, list_classes=rows)
    for results, part in zip(ranks, PARTS):
        value, vector, num_updates = results[15 + 3 * case :][:3]
        assert torch.equal(num_updates, whole.score_vector.num_updates)
        torch.testing.assert_close(vector, whole.score_vector.vector)
        alone = SOPRCLoss(**setting)
        alone.load_state_dict(whole.state_dict())
        alone.eval()
        expected = alone.rank(
            scores[part], kind[part] == 0, kind[part] == 1, list_classes=rows[part]
        )
        torch.testing.assert_close(value, expected)
