"""A tower with hidden layers."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from mmrank.models.grad_cache import GradCacheMixin
from mmrank.registry import MODELS


@MODELS.register_module()
class MLPTower(GradCacheMixin, nn.Module):
    """Another tower, then ReLU and linear layers.

    Args:
        stem: Config of the tower that reads the entities.
        stem_channels: Width of its embeddings.
        channels: Widths of the linear layers behind; the last is D.

    Raises:
        ValueError: If ``channels`` is empty.
    """

    def __init__(self, stem: dict, stem_channels: int, channels: Sequence[int]) -> None:
        super().__init__()
        if not channels:
            raise ValueError(
                'channels must name at least one layer; without one use the stem alone'
            )
        self.stem = MODELS.build(stem)
        widths = [stem_channels, *channels]
        layers = []
        for before, after in pairwise(widths):
            layers += [nn.ReLU(), nn.Linear(before, after)]
        self.layers = nn.Sequential(*layers)

    def forward(self, entities: dict[str, Tensor]) -> Tensor:
        """Embed entities.

        Args:
            entities: What the stem takes.

        Returns:
            (U, D) floats.
        """
        return self.embed_rows(self.layers, self.stem(entities))

    def encoders(self) -> list[nn.Module]:
        """The layers behind the stem, which looks its rows up."""
        return [self.layers]
