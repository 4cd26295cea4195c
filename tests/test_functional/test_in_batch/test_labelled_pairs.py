"""The loss of labelled pairs against a loop over the pairs."""

import pytest
import torch

from mmrank.functional import labelled_pair_loss

LEFT, RIGHT = torch.tensor([2, 0, 2, 1]), torch.tensor([0, 3, 1])


def rows(dtype=torch.float64):
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(n, 3, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
        for n in (3, 4)
    ]


def pointwise_loss(label, score, pointwise):
    if pointwise == 'square':
        return (label - score) ** 2 / 2
    return (1 + (score if label == 0 else -score).exp()).log()


@pytest.mark.parametrize('pointwise', ['square', 'logistic'])
@pytest.mark.parametrize('labels', ['mixed', 'none', 'all'])
@pytest.mark.parametrize('paired', [True, False])
def test_equals_the_loop(paired, labels, pointwise):
    left, right = rows()
    index = (LEFT[:3], RIGHT) if paired else (LEFT, RIGHT)
    cells = [*zip(*(x.tolist() for x in index))]
    if not paired:
        cells = [(i, j) for i in LEFT.tolist() for j in RIGHT.tolist()]
    y = {'mixed': [k % 3 == 0 for k in range(len(cells))]}.get(
        labels, [labels == 'all'] * len(cells)
    )
    expected = sum(
        pointwise_loss(float(k), left[i] @ right[j], pointwise) for k, (i, j) in zip(y, cells)
    ) / len(cells)
    is_positive = torch.tensor(y) if paired else torch.tensor(y).view(len(LEFT), -1)
    got = labelled_pair_loss(left, right, is_positive, *index, pointwise)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    for x, z in zip(*(torch.autograd.grad(v, (left, right)) for v in (got, expected))):
        torch.testing.assert_close(x, z, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(
        lambda a, b: labelled_pair_loss(a, b, is_positive, *index, pointwise), (left, right)
    )
