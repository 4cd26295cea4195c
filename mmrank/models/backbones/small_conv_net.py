"""Small convolutional network for small images."""

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.settings import check_count


@MODELS.register_module()
class SmallConvNet(BaseModule):
    """Blocks of 3 x 3 convolution, batch norm, ReLU and 2 x 2 max pooling.

    With the defaults 28 x 28 grey images become 64 x 1 x 1. Source: Vinyals et al., Matching
    Networks for One Shot Learning, NeurIPS 2016, section 4.1.1.

    Args:
        in_channels: Channels of the images.
        channels: Channels of each block.
        num_blocks: Number of blocks; each halves the size.
    """

    def __init__(self, in_channels: int = 1, channels: int = 64, num_blocks: int = 4) -> None:
        super().__init__(init_cfg=dict(type='Kaiming', layer='Conv2d'))
        sizes = dict(in_channels=in_channels, channels=channels, num_blocks=num_blocks)
        for name, value in sizes.items():
            check_count(name, value)
        self.blocks = nn.Sequential()
        for i in range(num_blocks):
            # The batch norm has an offset of its own.
            width = channels if i else in_channels
            layer = nn.Conv2d(width, channels, 3, padding=1, bias=False)
            others = nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(2)
            self.blocks.append(nn.Sequential(layer, *others))

    def forward(self, images: Tensor) -> tuple[Tensor]:
        """Tuple of the last (B, channels, H // 2 ** num_blocks, W // 2 ** num_blocks) map."""
        return (self.blocks(images),)
