"""Backbone of FastestDet, trained on COCO: a ShuffleNetV2 of 0.25 million numbers."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models import shufflenet_v2_x0_5

#: What FastestDet calls the layers of torchvision.
NAMES = {'first_conv': 'conv1', 'branch_main': 'branch2', 'branch_proj': 'branch1'}


class FastestDetBackbone(nn.Module):
    """Maps of strides 8, 16 and 32 with 48, 96 and 192 channels; batch norm is frozen.

    Args:
        weights: File of FastestDet.
    """

    def __init__(self, weights: str) -> None:
        super().__init__()
        net = shufflenet_v2_x0_5()
        learnt = {}
        for key, value in torch.load(weights, map_location='cpu', weights_only=True).items():
            for theirs, ours in NAMES.items():
                key = key.replace(theirs, ours)
            learnt[key.removeprefix('backbone.')] = value
        del net.conv5, net.fc
        net.load_state_dict({key: learnt[key] for key in net.state_dict()})
        self.net = net
        self.train()

    def train(self, mode: bool = True):
        """Set the mode; batch norm stays in evaluation."""
        super().train(mode)
        for layer in self.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
                layer.requires_grad_(False)
        return self

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Maps of (N, 3, H, W) BGR images in [0, 1]."""
        x = self.net.maxpool(self.net.conv1(images))
        found = []
        for stage in (self.net.stage2, self.net.stage3, self.net.stage4):
            # It splits even from odd channels where torchvision shuffles.
            x = torch.cat([stage[0].branch1(x), stage[0].branch2(x)], 1)
            for block in stage[1:]:
                x = torch.cat([x[:, 0::2], block.branch2(x[:, 1::2])], 1)
            found.append(x)
        return tuple(found)
