# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The temperatures of iSogCLR
#
# A contrastive loss divides similarities by a temperature. iSogCLR learns one
# for every image. This notebook trains a small network without labels, and
# looks at which images get a high and which a low temperature.
#
# It needs mmpretrain (`make env` installs it) and takes about a minute on two
# CPU cores. Run it in a checkout of mmrank.

# %%
import os
import warnings
from pathlib import Path

from IPython.display import Image

here = Path.cwd()
os.chdir(next(p for p in (here, *here.parents) if (p / 'configs/tutorials').is_dir()))
# A progress bar of the next cell asks for widgets; it does without.
warnings.filterwarnings('ignore', message='install "ipywidgets"')

# %% [markdown]
# ## The data
#
# 60 made-up characters, 20 drawings of each. Half of the characters are for
# training: 600 drawings, whose classes nobody looks at.

# %%
# %run tools/dataset_converters/make_glyphs.py data/glyphs --classes 60 --per-class 20

# %% [markdown]
# ## The training
#
# The config of the [self-supervised page](../pages/users/self_supervised.md),
# trained for 40 epochs. An image is in a batch once an epoch, so its
# temperature takes 40 steps. The temperatures are in the checkpoints, of which
# there is one for every fifth epoch.

# %%
# %%capture log
from mmengine.config import Config
from mmengine.runner import Runner

cfg = Config.fromfile('configs/tutorials/self_supervised.py')
cfg.work_dir = 'work_dirs/notebooks/temperatures'
cfg.train_cfg.update(max_epochs=40, val_interval=40)
cfg.default_hooks.checkpoint.interval = 5
runner = Runner.from_cfg(cfg)
before = runner.val()
after = runner.train() and runner.val_loop.run()

# %%
print('mAP of characters that were not trained on')
print(f'random weights:    {before["retrieval/mAP"]:.1f}')
print(f'after 40 epochs:   {after["retrieval/mAP"]:.1f}')

# %% [markdown]
# ## Histograms
#
# All images start at 0.2. Left: percentiles over the epochs. Right: the first
# and the last histogram.

# %%
# %%capture log
folder = Path('work_dirs/notebooks/temperatures')
checkpoints = [f'{folder}/epoch_{epoch}.pth' for epoch in range(5, 41, 5)]
command = f'configs/tutorials/self_supervised.py {" ".join(checkpoints)} --images 20'
# %run tools/analysis_tools/temperatures.py {command} --out-dir {folder}

# %%
Image(folder / 'history_temperature.png')

# %% [markdown]
# ## The images
#
# An image at 0.02 is at `tau0`, the lower bound.

# %%
Image(folder / 'sheet_temperature.png')

# %% [markdown]
# ## What a high temperature means
#
# The temperature of an image is the Lagrange multiplier of a bound on how
# far the weights of its negatives may be from uniform. An image with many
# close neighbours should get a high one: its weights are spread over all of
# them. An image with few gets a low one, which looks at the closest only.
#
# To check that, embed all training images by the learnt network, and take
# for each the mean cosine to its ten nearest other images.

# %%
# %%capture log
import torch
from mmengine.registry import DATASETS

from mmrank.pictures.temperatures import read_temperatures

model = runner.model.eval()
(found,) = read_temperatures(checkpoints[-1])
# The training images as the validation set is read: one view of each.
data = dict(cfg.train_dataloader.dataset, test_mode=True)
train_set = DATASETS.build(data)
loader = runner.build_dataloader(dict(cfg.val_dataloader, dataset=train_set))
with torch.no_grad():
    samples = [sample for batch in loader for sample in model.val_step(batch)]

# %%
features = torch.stack([sample.feature for sample in samples])
features = torch.nn.functional.normalize(features - features.mean(0))
cosines = (features @ features.t()).fill_diagonal_(-1)
closeness = cosines.topk(10).values.mean(1).numpy()

# %%
from scipy.stats import spearmanr

from mmrank.pictures.figures import new_panels, save
from mmrank.pictures.palette import colour

correlation = spearmanr(closeness, found.tau)
print(
    f'Spearman correlation {correlation.statistic:.2f}, '
    f'p = {correlation.pvalue:.1g}, {len(found.tau)} images'
)

figure, axes = new_panels(1, 1, width=5.6, height=3.8)
axes[0, 0].scatter(closeness, found.tau, s=9, color=colour(1), alpha=0.6)
axes[0, 0].set(xlabel='mean cosine to the ten nearest other images', ylabel='temperature')
Image(save(figure, 'work_dirs/notebooks/closeness.png'))

# %% [markdown]
# Images with many close neighbours have the higher temperatures, as they
# should. `tools/analysis_tools/temperatures.py CONFIG CHECKPOINT...` writes
# the histograms, tables and images for any training, and
# [iSogCLR](../../configs/isogclr/README.md) has what was measured on CIFAR-10
# with rare classes.
