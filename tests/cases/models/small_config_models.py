"""Small copies of the models of configs on mmpretrain, and a batch for each.

Each function narrows the networks of a config in place, without downloads.
"""

import torch
from labelled import data_samples
from mmpretrain.structures import DataSample


def pixels(*shape):
    g = torch.Generator().manual_seed(0)
    return torch.randint(0, 255, shape, dtype=torch.uint8, generator=g)


def narrow_resnet(backbone):
    """The same ResNet, narrow and without its download."""
    assert backbone.init_cfg.checkpoint == 'torchvision://resnet50'
    backbone.update(init_cfg=None, base_channels=8, stem_channels=8)


def retriever(cfg):
    """Shrink a retriever; give its batch and the number of channels of an image."""
    small = cfg.train_dataloader.dataset.type == 'mmrank.Omniglot'
    if not small:
        backbone = cfg.model.image_encoder[0]
        narrow_resnet(backbone.get('backbone', backbone))
        cfg.model.image_encoder[-1].in_channels = 256
    assert cfg.model.get('freeze_bn', False) != small
    classes = cfg.model.head.num_classes
    samples = data_samples([0, 0, 0, 1, 1, 1, classes - 1, classes - 1])
    return dict(inputs=list(pixels(8, 1 if small else 3, 32, 32)), data_samples=samples)


def classifier(cfg):
    """Shrink a one-vs-rest classifier; give its batch."""
    model = cfg.model
    if model.backbone.get('depth') == 50:
        narrow_resnet(model.backbone)
        model.head.in_channels = 256
    elif model.backbone.type != 'mmrank.SmallConvNet':
        model.backbone = dict(type='mmrank.SmallConvNet', in_channels=3, channels=8, num_blocks=2)
        model.head.in_channels = 8
    hooks = {hook['type'] for hook in cfg.custom_hooks}
    assert {'mmrank.ClassCountsHook', 'mmrank.DeferredReweightingHook'} <= hooks
    classes = range(model.head.num_classes)
    labels = [[c for c in classes if i % (c + 2) == 0] for i in range(12)]
    if len(classes) == 1:
        labels = [int(i % 3 == 0) for i in range(12)]
    return dict(inputs=list(pixels(12, 3, 32, 32)), data_samples=data_samples(labels))


def dual_encoder(cfg):
    """Shrink a model of images and texts; give its batch."""
    model = cfg.model
    small = model.image_encoder[0].type == 'mmrank.SmallConvNet'
    if not small:
        narrow_resnet(model.image_encoder[0])
        model.image_channels = 256
        assert model.text_encoder.type == 'mmrank.HuggingFaceTextEncoder'
        assert model.text_encoder.name_or_path == 'distilbert-base-uncased'
        model.text_encoder = dict(type='mmrank.TextTransformer', channels=16, num_layers=1)
    samples = []
    for i, letter in enumerate('abcdef'):
        info = dict(sample_idx=2 * i, image_id=i, text_id=i)
        samples.append(DataSample(metainfo=info).set_gt_label(i))
        samples[-1].set_field(f'a photo of {letter}', 'text')
    size = 16 if small else 32
    return dict(inputs=pixels(6, 3, size, size), data_samples=samples)


def view_learner(cfg):
    """Shrink a learner from two views; give its batch."""
    neck, backbone = cfg.model.neck, cfg.model.backbone
    small = backbone.type == 'mmrank.SmallConvNet'
    if not small:
        assert (neck.hid_channels, neck.out_channels) in ((8192, 8192), (8192, 8193))
        backbone.update(depth=18, base_channels=8, norm_cfg=dict(type='BN'))
        neck.in_channels = 64
    extra = neck.out_channels % 2  # a temperature
    neck.update(hid_channels=32, out_channels=32 + extra, norm_cfg=dict(type='BN1d'))
    images = pixels(4, 3, 16, 16) if small else pixels(4, 3, 64, 64)
    inputs = images if small else [images, images.flip(3)]
    return dict(inputs=inputs, data_samples=data_samples(range(4), range(0, 28, 7)))


FAMILIES = {
    'mmrank.EmbeddingRetriever': retriever,
    'mmpretrain.ImageClassifier': classifier,
    'mmrank.ImageTextDualEncoder': dual_encoder,
    'mmrank.TwoViewLearner': view_learner,
}
