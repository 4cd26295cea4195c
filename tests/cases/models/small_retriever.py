"""Small retrievers and data for tests."""

import copy

import torch
from mmengine.registry import MODELS

STABLE_AP = dict(
    type='mmrank.StableAPLoss',
    mode='per_class',
    rho='batch',
    tau=0.1,
    score_range=(-1, 1),
    score_penalty=0,
    momentum=0.3,
)
SOPRC = dict(type='mmrank.SOPRCLoss', mode='per_class', prior=0.2)
CLASSES, DIM = 4, 8


def build_head(loss=STABLE_AP, **kwargs):
    config = dict(type='mmrank.RetrievalHead', num_classes=CLASSES, loss=dict(loss))
    return MODELS.build({**config, **kwargs})


def build_retriever(encoder=None, head=None, **kwargs):
    """Retriever of 16 x 16 colour images."""
    torch.manual_seed(0)
    backbone = encoder or dict(type='mmrank.SmallConvNet', in_channels=3, channels=16, num_blocks=3)
    channels = 64 if encoder else 16
    config = dict(
        type='mmrank.EmbeddingRetriever',
        image_encoder=[
            copy.deepcopy(backbone),
            dict(type='mmpretrain.GlobalAveragePooling'),
            dict(
                type='mmpretrain.LinearNeck', in_channels=channels, out_channels=DIM, norm_cfg=None
            ),
        ],
        head=head or dict(type='mmrank.RetrievalHead', num_classes=CLASSES, loss=dict(STABLE_AP)),
    )
    return MODELS.build({**config, **kwargs})


class Sample(dict):
    """What a head requires of a data sample."""

    def __getattr__(self, name):
        return self[name]


def samples(labels, ids=None):
    ids = range(len(labels)) if ids is None else ids
    return [
        Sample(gt_label=torch.as_tensor(c).reshape(-1), sample_idx=int(i))
        for c, i in zip(labels, ids)
    ]
