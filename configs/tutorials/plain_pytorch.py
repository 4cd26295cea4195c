"""Rare positives, a plain PyTorch loop: stable AP against cross-entropy."""

import torch

from mmrank import StableAPLoss
from mmrank.functional import average_precision


def make_data(n, seed):
    """(n, 20) features and (n,) bool labels, 3 % of them True."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.rand(n, generator=g) < 0.03
    x = torch.randn(n, 20, generator=g)
    x[labels] += 0.6 * torch.randn(20, generator=torch.Generator().manual_seed(9))
    return x, labels


def train(loss_function):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, labels = make_data(4000, seed=0)
    for step in range(300):
        batch = torch.randint(0, len(x), (256, ))
        scores, target = model(x[batch])[:, 0], labels[batch].float()
        loss = loss_function(scores, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, labels = make_data(4000, seed=1)
    with torch.no_grad():
        return average_precision(model(x)[:, 0], labels).item()


# One score and one target of 0 or 1 a sample: shapes (n,) and (n,).
print(f'stable AP:     AP {train(StableAPLoss()):.3f}')
print(f'cross-entropy: AP {train(torch.nn.BCEWithLogitsLoss()):.3f}')
