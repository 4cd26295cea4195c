"""A small transformer that reads texts as bytes."""

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmrank.registry import MODELS

from .byte_tokenizer import ByteTokenizer


@MODELS.register_module()
class TextTransformer(BaseModule):
    """Text encoder for tests, small data and machines without a network.

    Bytes, learned positions, pre-norm layers, and the mean over the tokens of a text.

    Args:
        channels: Width W.
        num_layers: Layers.
        num_heads: Attention heads; must divide ``channels``.
        max_length: Most bytes of a text and 2; see :class:`ByteTokenizer`.
        dropout: Share of activations left out in training.
        init_cfg: See mmengine's ``BaseModule``.

    Attributes:
        out_channels: W.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        channels: int = 128,
        num_layers: int = 2,
        num_heads: int = 4,
        max_length: int = 77,
        dropout: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        if num_heads < 1 or channels < 1 or channels % num_heads:
            raise ValueError(
                'channels must be a multiple of num_heads, got '
                f'channels={channels!r} and num_heads={num_heads!r}'
            )
        if num_layers < 1:
            raise ValueError(f'num_layers must be at least 1, got {num_layers!r}')
        self.out_channels = channels
        self.tokenizer = ByteTokenizer(max_length)
        self.tokens = nn.Embedding(self.tokenizer.vocab_size, channels, padding_idx=0)
        self.positions = nn.Parameter(torch.empty(max_length, channels))
        for weights in (self.tokens.weight, self.positions):
            nn.init.normal_(weights, std=0.02)
        with torch.no_grad():
            self.tokens.weight[0] = 0
        # One layer after the other: copies would begin with equal weights.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                channels,
                num_heads,
                4 * channels,
                dropout,
                'gelu',
                batch_first=True,
                norm_first=True,
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, texts: list[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: n strings; '' is allowed.

        Returns:
            (n, W) floats.

        Raises:
            TypeError: If one is no string.
        """
        tokens, mask = (
            x.to(self.positions.device, non_blocking=True) for x in self.tokenizer(texts)
        )
        x = self.tokens(tokens) + self.positions[: tokens.size(1)]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        x = self.norm(x) * mask[:, :, None]
        return x.sum(1) / mask.sum(1, keepdim=True)
