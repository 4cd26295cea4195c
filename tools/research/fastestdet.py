"""The backbone of FastestDet, a ShuffleNetV2 of 0.25 million numbers that learnt on COCO."""

import torch
from mmengine.model import BaseModule
from torch import Tensor
from torchvision.models import shufflenet_v2_x0_5

from mmrank.registry import MODELS

#: What FastestDet calls the layers of torchvision.
NAMES = {'first_conv': 'conv1', 'branch_main': 'branch2', 'branch_proj': 'branch1'}


@MODELS.register_module()
class FastestDetBackbone(BaseModule):
    """BGR images of 0 to 1 to maps of 48, 96 and 192 channels, of strides 8, 16 and 32.

    Args:
        weights: File of FastestDet's weights, of the backbone or the whole detector.
    """

    def __init__(self, weights: str) -> None:
        super().__init__()
        self.net = shufflenet_v2_x0_5()
        del self.net.conv5, self.net.fc
        learnt = {}
        for key, value in torch.load(weights, map_location='cpu', weights_only=True).items():
            for theirs, ours in NAMES.items():
                key = key.replace(theirs, ours)
            learnt[key.removeprefix('backbone.')] = value
        own = self.net.state_dict()
        self.net.load_state_dict({key: learnt[key] for key in own})

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The maps of three stages."""
        x = self.net.maxpool(self.net.conv1(images))
        found = []
        for stage in (self.net.stage2, self.net.stage3, self.net.stage4):
            # It splits even from odd channels where torchvision shuffles.
            x = torch.cat([stage[0].branch1(x), stage[0].branch2(x)], 1)
            for block in stage[1:]:
                x = torch.cat([x[:, 0::2], block.branch2(x[:, 1::2])], 1)
            found.append(x)
        return tuple(found)
