r"""A step of the detectors of other libraries on stable AP, compared with their own loss.

    make env-adapters
    .venv-adapters/bin/python tools/benchmarks/adapter_step.py
    .venv-adapters/bin/python tools/benchmarks/adapter_step.py --models RfDetr rfdetr --repeats 9

Two models of one library, of its default size and the same random weights, get the same batch in
turn, forward and backward. CPU time counts; the ratio is the median over the turns.
"""

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.timing import cpu_in_turn
from mmrank.adapters import use_ranking_loss
from mmrank.losses import StableAPLoss

TORCHVISION = ['RetinaNet', 'FCOS', 'FasterRCNN', 'MaskRCNN']
SINGLE_LEVEL = ['ConditionalDetr', 'DabDetr']
TRANSFORMERS = ['RTDetr', 'RTDetrV2', 'DFine', 'Deimv2', *SINGLE_LEVEL, 'DeformableDetr']
TRANSFORMERS += ['LwDetr', 'RfDetr']
#: Images of a batch, and boxes of an image.
BATCH, BOXES, CLASSES = 2, 8, 80


def build(name: str, size: int) -> nn.Module:
    """A model of random weights for images of ``size``, in training mode."""
    torch.manual_seed(0)
    if name in TORCHVISION:
        from torchvision.models import detection

        make = getattr(detection, f'{name.lower()}_resnet50_fpn')
        sizes = dict(min_size=size, max_size=size)
        return make(None, num_classes=CLASSES, weights_backbone=None, **sizes).train()
    if name == 'rfdetr':
        from rfdetr.config import RFDETRNanoConfig, TrainConfig
        from rfdetr.training import RFDETRModelModule

        config = RFDETRNanoConfig(pretrain_weights=None, num_classes=CLASSES - 1, device='cpu')
        return RFDETRModelModule(config, TrainConfig(dataset_dir='.', output_dir='.')).train()
    import transformers as hf

    own = dict(num_labels=CLASSES)
    if name == 'DeformableDetr':
        backbone = hf.ResNetConfig(out_features=['stage2', 'stage3', 'stage4'])
        own.update(backbone_config=backbone, use_timm_backbone=False, num_feature_levels=3)
        own.update(use_pretrained_backbone=False, auxiliary_loss=True)
    elif name in SINGLE_LEVEL:
        backbone = hf.ResNetConfig(out_features=['stage4'])
        own.update(backbone_config=backbone, auxiliary_loss=True)
    elif name == 'LwDetr':
        # Its proposals are pixels of one level: no more queries than these.
        own['num_queries'] = min(300, (size // 16) ** 2)
        own['projector_scale_factors'] = [1.0]
        own['backbone_config'] = hf.LwDetrViTConfig(
            hidden_size=192,
            num_hidden_layers=10,
            image_size=size,
            window_block_indices=[0, 1, 3, 6, 7, 9],
            out_indices=[2, 4, 5, 9],
        )
    elif name == 'RfDetr':
        own['num_queries'] = min(300, (size // 14) ** 2)
    model = getattr(hf, f'{name}ForObjectDetection')(getattr(hf, f'{name}Config')(**own))
    return model.train()


def make_step(name: str, model: nn.Module, images: Tensor, targets: list[dict]) -> Callable:
    """Forward and backward of one batch."""
    if name in TORCHVISION:
        size = images.size(-1)
        own = []
        for target in targets:
            centre, extent = target['boxes'].split(2, 1)
            corners = torch.cat([centre - extent / 2, centre + extent / 2], 1) * size
            masks = torch.ones(len(corners), size, size, dtype=torch.uint8)
            own.append(dict(boxes=corners, labels=target['labels'], masks=masks))

        def loss() -> Tensor:
            return sum(model([*images], own).values())

    elif name == 'rfdetr':
        from rfdetr.utilities.tensors import nested_tensor_from_tensor_list

        def loss() -> Tensor:
            outputs = model.model(nested_tensor_from_tensor_list([*images]), targets)
            parts = model.criterion(outputs, targets)
            weights = model.criterion.weight_dict
            return sum(weights[key] * part for key, part in parts.items() if key in weights)

    else:
        if name == 'RfDetr':
            number = images.size(-1) // 56 * 56  # whole windows
            images = images[..., :number, :number]
        labels = [dict(class_labels=t['labels'], boxes=t['boxes']) for t in targets]

        def loss() -> Tensor:
            return model(pixel_values=images, labels=labels).loss

    def step() -> None:
        torch.manual_seed(0)  # of noise and sampling
        model.zero_grad()
        loss().backward()

    return step


def main() -> None:
    parser = tool_parser(
        __doc__, models=[*TORCHVISION, *TRANSFORMERS, 'rfdetr'], image_size=384, repeats=5
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.rand(BATCH, 3, args.image_size, args.image_size)
    targets = [
        dict(labels=torch.randint(1, CLASSES, (BOXES,)), boxes=0.3 + 0.3 * torch.rand(BOXES, 4))
        for _ in images
    ]
    table = Table('model', 'own loss ms', 'stable AP ms', 'ratio')
    for name in args.models:
        stock = build(name, args.image_size)
        ranked = use_ranking_loss(copy.deepcopy(stock), StableAPLoss())
        steps = {'own': stock, 'ranked': ranked}
        steps = {k: (make_step(name, x, images, targets), ()) for k, x in steps.items()}
        for function, _ in steps.values():
            function()
        found = cpu_in_turn(steps, args.repeats)
        times = [f'{1e3 * found[key][0]:.0f}' for key in steps]
        table.add_row(name, *times, f'{found["ranked"][1]:.3f}')
        print(name, *times, found['ranked'][1], file=sys.stderr, flush=True)
    Console().print(table)


if __name__ == '__main__':
    main()
