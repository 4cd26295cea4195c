"""Random numbers, rows of classes and pairs of views by their seeds; comparison of gradients."""

import torch


def made_up(*shape, seed=0):
    """Normal numbers in float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows_with_background(n, classes, seed=0, dtype=torch.float64):
    """(n, C) scores, and the class of each row, which is C for two thirds of them: background."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, classes, generator=g, dtype=torch.float64)
    target = torch.randint(0, 3 * classes, (n,), generator=g)
    return scores.to(dtype), target.clamp(max=classes)


def one_vs_rest(scores, target):
    """(n, C) bool: whether a row is of a class."""
    return target[:, None] == torch.arange(scores.size(1))


def two_views(n=6, seed=0, dim=4):
    """Two (n, dim) float64 tensors."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(2)]


def with_gradient(function, leaf, *args, **kwargs):
    """Value of a function of a tensor, and the gradient of its sum."""
    leaf = leaf.detach().clone().requires_grad_()
    value = function(leaf, *args, **kwargs)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def assert_same_gradients(found, expected, leaves, **tolerance):
    """Compare a value, or several with a weight each, and the gradients."""
    torch.testing.assert_close(found, expected, **tolerance)
    slopes = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    gradients = [
        torch.autograd.grad((x * slopes).sum(), leaves, retain_graph=True)
        for x in (found, expected)
    ]
    torch.testing.assert_close(*gradients, **tolerance)
