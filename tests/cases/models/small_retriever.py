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
#: A config of images in a folder for each class.
IMAGE_CONFIG = """
default_scope = 'mmpretrain'
model = dict(
    type='mmrank.EmbeddingRetriever',
    image_encoder=[
        dict(
            type='mmrank.SmallConvNet', in_channels=3, channels=8,
            num_blocks=2),
        dict(type='mmpretrain.GlobalAveragePooling')],
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True))
test_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CustomDataset',
        data_prefix=r'{images}',
        pipeline=[
            dict(type='LoadImageFromFile'), dict(type='Resize', scale=(16, 16)),
            dict(type='PackInputs')]))
test_cfg = dict()
test_evaluator = [
    dict(
        type='mmrank.RetrievalMetric', recall_at=(1, 3)),
    dict(type='Accuracy')]
"""


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


def write_image_config(path, images):
    """Write the config of a small retriever, untrained, of a folder of images."""
    path.write_text(IMAGE_CONFIG.replace('{images}', str(images)))
    return path


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
