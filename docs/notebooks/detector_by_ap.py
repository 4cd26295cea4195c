# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A detector by AP in ten minutes
#
# A detector is judged by average precision (AP) and trained on something
# else, most often focal loss. This notebook trains the same small RetinaNet
# twice, once on focal loss and once on graded AP-Loss, and looks at both.
#
# It needs mmdet (`make env` installs it) and takes about two minutes on two
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
# 200 made-up images of shapes, in COCO's format. Six classes, the last ones
# rare, with clutter that belongs to no class.

# %%
# %run tools/dataset_converters/make_shapes_coco.py --out data/shapes_small --num-train 160 --num-val 40 --num-test 0

# %% [markdown]
# ## The config
#
# `configs/tutorials/detector.py` is the config of the [detector
# page](../pages/users/detector.md). Two things differ from a RetinaNet with
# focal loss: the head is a `mmrank.ListwiseHead`, which gathers the scores of
# all feature levels and images, and its loss is `mmrank.GradedAPLoss`. The
# twin puts the head with focal loss back.

# %%
import copy

from mmengine.config import Config

graded_ap = Config.fromfile('configs/tutorials/detector.py')
graded_ap.default_hooks.logger.interval = 6

focal = copy.deepcopy(graded_ap)
focal.model.bbox_head = Config.fromfile(
    'configs/_base_/models/retinanet_r18_fpn_small.py'
).model.bbox_head
focal.custom_hooks = []  # they look at ranking losses

for cfg in (graded_ap, focal):
    head = cfg.model.bbox_head
    print(head.type, '-', head.loss_cls.type)

# %% [markdown]
# ## Two trainings
#
# Six epochs each, from scratch, with the same seed, optimiser and images.
# `mmrank train CONFIG` does the same in a shell.

# %%
# %%capture log
from mmengine.runner import Runner


def train(cfg, name):
    cfg.work_dir = f'work_dirs/notebooks/{name}'
    cfg.visualizer.name = name
    cfg.val_evaluator.outfile_prefix = f'{cfg.work_dir}/val'
    Runner.from_cfg(cfg).train()


train(graded_ap, 'graded_ap')
train(focal, 'focal')

# %% [markdown]
# The loss of the classes is 1 - AP of the batch, graded by the boxes, over its
# largest value: it falls as AP rises.

# %%
out = 'work_dirs/notebooks'
# %run tools/analysis_tools/training_curves.py {out}/graded_ap --keys loss_cls loss_bbox --out {out}/detector_curves.png

# %%
Image('work_dirs/notebooks/detector_curves.png')

# %% [markdown]
# ## AP and precision-recall curves
#
# On the 40 images of the validation split. One seed: this shows that both
# work, not which is better. [The results](../pages/results.md) have tables
# over seeds.

# %%
truth = 'data/shapes_small/annotations/val.json'
models = (
    '"graded AP-Loss=work_dirs/notebooks/graded_ap/val.bbox.json" '
    '"focal=work_dirs/notebooks/focal/val.bbox.json"'
)
# %run tools/analysis_tools/plot_pr_curves.py {truth} {models} --max-classes 3 --out {out}/pr_curves.png

# %%
Image('work_dirs/notebooks/pr_curves.png')

# %% [markdown]
# ## Detections
#
# The truth, then both models, each above its own best-F1 score per class.
# Solid boxes match an object of their class at IoU 0.5, dashed ones do not.

# %%
# %run tools/analysis_tools/draw_detections.py {truth} data/shapes_small/val {models} --num-images 3 --out {out}/detections.png

# %%
Image('work_dirs/notebooks/detections.png')

# %% [markdown]
# ## Your detector
#
# The change to a config of mmdet, on any head of [this
# list](../pages/users/detector.md#heads):
#
# ```text
# _base_ = 'mmdet::atss/atss_r50_fpn_1x_coco.py'
# model = dict(bbox_head=dict(
#     type='mmrank.ListwiseHead',
#     head_type='mmdet.ATSSHead',
#     loss_cls=dict(_delete_=True, type='mmrank.GradedAPLoss')))
# ```
