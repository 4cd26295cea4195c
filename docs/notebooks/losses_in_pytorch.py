# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The losses in a plain PyTorch loop
#
# The losses of `mmrank.losses` are modules that need torch alone. This
# notebook trains a small network on a problem with 3 % positives, once with
# cross-entropy and once with each of four losses that rank the scores of a
# batch, and measures average precision (AP).
#
# Each loss gets the same trials: the learning rate is chosen on validation
# data with a seed of its own, then three fresh seeds are tested.
#
# It takes less than a minute on two CPU cores.

# %%
import torch
from IPython.display import Image

from mmrank import APLoss, SmoothAPLoss, SOPRCLoss, StableAPLoss
from mmrank.functional import average_precision
from mmrank.pictures.figures import legend_above, new_panels, save
from mmrank.pictures.palette import colour

# %% [markdown]
# ## The data
#
# Twenty features of normal noise. The positives form two groups, each with
# a mean of its own.


# %%
def make_data(n, seed):
    """(n, 20) features and (n,) targets of 0 and 1, 3 % of them 1."""
    g = torch.Generator().manual_seed(seed)
    is_positive = torch.rand(n, generator=g) < 0.03
    group = torch.randint(0, 2, (n,), generator=g)
    means = torch.randn(2, 20, generator=torch.Generator().manual_seed(9))
    features = torch.randn(n, 20, generator=g)
    features[is_positive] += 0.6 * means[group[is_positive]]
    return features, is_positive.float()


train_set = make_data(4000, seed=0)
val_set = make_data(4000, seed=1)
test_set = make_data(8000, seed=2)
print('positives:', *(int(y.sum()) for _, y in (train_set, val_set, test_set)))

# %% [markdown]
# ## The losses
#
# All take scores `(n,)` and targets `(n,)`. Scores are logits here, so
# the losses that were made for cosines get wider settings: a temperature
# `tau` in the units of the scores, and for SOPRC a `score_range`.

# %%
LOSSES = {
    'cross-entropy': torch.nn.BCEWithLogitsLoss,
    'stable AP': StableAPLoss,
    'SOPRC': lambda: SOPRCLoss(tau1=1.0, tau2=0.01, score_range=(-5.0, 5.0)),
    'SmoothAP': lambda: SmoothAPLoss(tau=0.5),
    'AP-Loss': APLoss,
}
COLOURS = {name: colour(index) for index, name in enumerate(LOSSES)}

# %% [markdown]
# ## The loop
#
# Nothing in it knows which loss it has.

# %%
STEPS, EVERY = 300, 20


def train(name, lr, seed, evaluation_set):
    """AP on a data set every 20 steps, and the loss."""
    torch.manual_seed(seed)
    loss_function = LOSSES[name]()
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    features, targets = train_set
    curve = []
    for step in range(1, STEPS + 1):
        batch = torch.randint(0, len(features), (256,))
        loss = loss_function(model(features[batch])[:, 0], targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                scores = model(evaluation_set[0])[:, 0]
            is_positive = evaluation_set[1] > 0
            curve.append(average_precision(scores, is_positive).item())
    return torch.tensor(curve), loss_function


# %% [markdown]
# ## The learning rate
#
# Losses differ in the size of their gradients. To compare them at one
# learning rate would compare learning rates.

# %%
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
val_ap = {name: [train(name, lr, 100, val_set)[0][-1].item() for lr in RATES] for name in LOSSES}
best = {name: RATES[aps.index(max(aps))] for name, aps in val_ap.items()}
for name, aps in val_ap.items():
    row = '  '.join(f'{ap:.3f}' for ap in aps)
    print(f'{name:14} {row}   chosen: {best[name]}')

# %% [markdown]
# ## Three fresh seeds on the test data

# %%
curves, kept = {}, {}
for name in LOSSES:
    runs = [train(name, best[name], seed, test_set) for seed in (0, 1, 2)]
    curves[name] = torch.stack([curve for curve, _ in runs])
    kept[name] = runs[0][1]

print(f'{"":14} AP after 60 steps   after 300 steps')
for name, own in curves.items():
    early, last = own[:, 60 // EVERY - 1], own[:, -1]
    print(
        f'{name:14} {early.mean():.3f} +- {early.std():.3f}'
        f'     {last.mean():.3f} +- {last.std():.3f}'
    )

# %%
figure, axes = new_panels(1, 2, width=4.6, height=3.6)
learning, rates = axes[0]
steps = range(EVERY, STEPS + 1, EVERY)
for name, own in curves.items():
    style = dict(color=COLOURS[name], label=name)
    learning.plot(steps, own.mean(0), **style)
    learning.fill_between(steps, own.amin(0), own.amax(0), color=COLOURS[name], alpha=0.12)
    rates.plot(RATES, val_ap[name], marker='o', markersize=4, **style)
learning.set(
    xlabel='step',
    ylabel='AP, test',
    ylim=(0, 1),
    title='mean of three seeds; shaded: lowest to highest',
)
rates.set(
    xlabel='learning rate of AdamW',
    ylabel='AP, validation',
    ylim=(0, 1),
    xscale='log',
    title='the trials: step 300 of one seed',
)
for axis in axes[0]:
    axis.title.set_fontsize(9)
legend_above(figure, learning, columns=5)
Image(save(figure, 'work_dirs/notebooks/learning_curves.png'))

# %% [markdown]
# Left: how fast each loss gets there. Right: how much the learning rate
# matters. These are small data, one network and 300 steps: a comparison of
# losses on your problem needs your data, and more seeds.
#
# ## What a loss says of itself, and what it keeps
#
# `diagnostics` holds scalars of the last call. For stable AP `risk` must
# fall, and `argument` stays near 1 until `rho` reaches negatives over
# positives.

# %%
for key, value in kept['stable AP'].diagnostics.items():
    print(f'{key:14} {float(value):.3f}')

# %% [markdown]
# The moving averages of a loss are its state. Save it beside the model:

# %%
for name in ('stable AP', 'SOPRC', 'SmoothAP', 'AP-Loss'):
    state = kept[name].state_dict()
    sizes = ', '.join(f'{key} {tuple(x.shape)}' for key, x in state.items())
    print(f'{name}: {sizes or "no state"}')

# %% [markdown]
# Next: [plain PyTorch](../pages/users/pytorch.md) has the shapes for several
# classes and for embeddings, and [how each loss
# works](../pages/losses.md) has the formulas.
