# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Unbiased two-tower recommendations
#
# A two-tower model embeds users and items, and recommends the items with the
# largest inner product. It is trained on positive pairs: the other items of a
# batch are the negatives. Popular items are in a batch more often, so they
# are negatives more often, and get scores that are too low.
#
# This notebook trains the same model with the common in-batch loss and with
# the unbiased one, and compares what they recommend. It takes less than a
# minute on two CPU cores. It needs mmengine; run it in a checkout of mmrank.

# %%
import os
from pathlib import Path

from IPython.display import Image

here = Path.cwd()
os.chdir(next(p for p in (here, *here.parents) if (p / 'configs/tutorials').is_dir()))

# %% [markdown]
# ## The data
#
# Made-up users and items. A pair's log odds are the inner product of two
# hidden vectors, plus the activity of the user and the popularity of the
# item. `train.csv` and `test.csv` hold lines `user,item`. A part of the
# training pairs is split off to choose learning rates.

# %%
# %run tools/dataset_converters/make_interactions.py data/interactions
# %run tools/dataset_converters/split_interactions.py data/interactions/train.csv data/interactions_split --share 0.15

# %% [markdown]
# ## The trainings
#
# The config of the [recommendation page](../pages/users/recommendation.md).
# Only `mode` of the loss and the learning rate change. Each mode gets the
# same five rates, judged on the pairs that were split off; then it is trained
# on all training pairs and tested, three seeds each.

# %%
# %%capture log
from mmengine.config import Config
from mmengine.runner import Runner

MODES = ('unbiased', 'in_batch')
RATES = (0.3, 1.0, 3.0, 10.0, 30.0)
METRIC = 'top_k/precision@5'


def train(mode, lr, folder, seed):
    """A trained runner, and its metrics."""
    cfg = Config.fromfile('configs/tutorials/recommendation.py')
    cfg.work_dir = f'work_dirs/notebooks/{mode}_{lr}_{seed}'
    cfg.experiment_name = f'{mode}_{lr}_{seed}_{Path(folder).name}'
    cfg.randomness.seed = seed
    cfg.model.loss.mode = mode
    cfg.optim_wrapper.optimizer.lr = lr
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.data_root = folder
    cfg.test_dataloader = cfg.val_dataloader
    cfg.train_cfg.update(max_epochs=40, val_interval=41)
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=40)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner, runner.test()


trials = {
    mode: {lr: train(mode, lr, 'data/interactions_split', seed=100)[1][METRIC] for lr in RATES}
    for mode in MODES
}
best = {mode: max(own, key=own.get) for mode, own in trials.items()}
runs = {
    mode: [train(mode, best[mode], 'data/interactions', seed) for seed in (0, 1, 2)]
    for mode in MODES
}

# %%
import torch

print('P@5 on the pairs split off')
for mode, own in trials.items():
    row = '  '.join(f'lr {lr}: {value:.1f}' for lr, value in own.items())
    print(f'{mode:9} {row}   chosen: {best[mode]}')

print('\nTest, mean +- std of three seeds')
for mode, own in runs.items():
    for key in ('top_k/precision@1', 'top_k/precision@5', 'top_k/recall@25'):
        values = torch.tensor([metrics[key] for _, metrics in own])
        print(f'{mode:9} {key:18} {values.mean():.1f} +- {values.std():.1f}')

# %% [markdown]
# ## What is recommended
#
# Five items for every user, and how popular they are: items are sorted by
# their training pairs, and put into ten groups of ten. The held-out pairs
# tell how popular the items are that users really take next.

# %%
import numpy as np

from mmrank.evaluation.recommendation import recommend
from mmrank.pictures.figures import legend_above, new_panels, save
from mmrank.pictures.palette import colour

pairs = runs['unbiased'][0][0].train_dataloader.dataset.interactions
held_out = runs['unbiased'][0][0].test_dataloader.dataset.interactions
num_items = pairs.shape[1]
order = np.argsort(np.argsort(-np.bincount(pairs.cols, minlength=num_items)))
group = order * 10 // num_items  # 0: the most popular tenth
col_of = {str(name): col for col, name in enumerate(pairs.col_names)}
users = [str(name) for name in pairs.row_names]


def shares(cols):
    """Percent of the items that are in each group."""
    counts = np.bincount(group[np.asarray(cols)], minlength=10)
    return 100 * counts / counts.sum()


drawn = {'held-out pairs': ([shares(held_out.cols)], '#888888')}
for index, mode in enumerate(MODES):
    own = []
    for runner, _ in runs[mode]:
        lists = recommend(runner.model.eval(), pairs, users, count=5)
        own.append(shares([col_of[item] for row in lists for item, _ in row]))
    drawn[f'recommended, {mode}'] = own, colour(index)

figure, axes = new_panels(1, 1, width=7.2, height=3.8)
places = np.arange(10)
for index, (name, (own, tint)) in enumerate(drawn.items()):
    axes[0, 0].bar(places + 0.27 * (index - 1), np.mean(own, axis=0), 0.25, color=tint, label=name)
axes[0, 0].set(
    xlabel='items by popularity in the training pairs, tenths',
    ylabel='% of the pairs',
    xticks=places,
    xticklabels=['most\npopular', *range(2, 10), 'least\npopular'],
)
axes[0, 0].set_axisbelow(True)
legend_above(figure, axes[0, 0], columns=3)
Image(save(figure, 'work_dirs/notebooks/popularity.png'))

# %% [markdown]
# ## One user
#
# What both models recommend to one user, best first. Items of the user's
# training pairs are left out. `tools/analysis_tools/recommend.py CONFIG
# CHECKPOINT USER` prints the same for a checkpoint.

# %%
row = int(np.bincount(held_out.rows).argmax())  # has most held-out items
user = str(pairs.row_names[row])
wanted = {str(pairs.col_names[c]) for c in held_out.cols[held_out.rows == row]}
counts = np.bincount(pairs.cols, minlength=num_items)
print(f'user {user}, held-out items: {", ".join(sorted(wanted, key=int))}\n')
for mode in MODES:
    (items,) = recommend(runs[mode][0][0].model, pairs, [user], count=8)
    print(f'{mode}\nrank  item  score  users in training  held out')
    for rank, (item, score) in enumerate(items, 1):
        hit = 'yes' if item in wanted else ''
        known = counts[col_of[item]]
        print(f'{rank:4}  {item:>4} {score:6.2f}  {known:17}  {hit}')
    print()
