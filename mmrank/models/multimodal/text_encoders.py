"""Text encoders: a small one on bytes, and the ones of Hugging Face's transformers."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mmrank.errors import UserError
from mmrank.imports import required_package
from mmrank.registry import MODELS
from mmrank.settings import check_at_least

#: Tokens: 0 pads a text, 1 begins it, 2 ends it, and the others are its bytes.
_START = 1
_END = 2
_FIRST_BYTE = 3


def _byte_tokens(texts: Sequence[str], max_length: int) -> Tensor:
    """(n, L) int64 tokens of the UTF-8 bytes of n texts; a long one loses its last bytes."""
    rows = []
    for text in texts:
        inner = [x + _FIRST_BYTE for x in text.encode()[: max_length - 2]]
        rows.append(torch.tensor([_START, *inner, _END]))
    return pad_sequence(rows, batch_first=True) if rows else torch.zeros(0, 2, dtype=torch.long)


@MODELS.register_module()
class TextTransformer(BaseModule):
    """Text encoder for tests, small data and machines without a network.

    Bytes, learned positions, pre-norm layers, and the mean over the tokens of a text.

    Args:
        channels: Width W.
        num_layers: Layers.
        num_heads: Attention heads; must divide ``channels``.
        max_length: Most bytes of a text, and 2; the rest is left out.
    """

    def __init__(
        self, channels: int = 128, num_layers: int = 2, num_heads: int = 4, max_length: int = 77
    ) -> None:
        super().__init__()
        check_at_least(1, num_layers=num_layers)
        check_at_least(3, max_length=max_length)  # start, end and a byte
        self.out_channels = channels
        self.tokens = nn.Embedding(_FIRST_BYTE + 256, channels, padding_idx=0)
        self.positions = nn.Parameter(torch.empty(max_length, channels))
        for weights in (self.tokens.weight, self.positions):
            nn.init.normal_(weights, std=0.02)
        nn.init.zeros_(self.tokens.weight[0])
        # One layer after the other: copies would begin with equal weights.
        kind = dict(dropout=0, activation='gelu', batch_first=True, norm_first=True)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(channels, num_heads, 4 * channels, **kind)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, texts: list[str]) -> Tensor:
        """(n, W) floats of n strings; '' is allowed."""
        tokens = _byte_tokens(texts, len(self.positions))
        tokens = tokens.to(self.positions.device, non_blocking=True)
        mask = tokens != 0
        x = self.tokens(tokens) + self.positions[: tokens.size(1)]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        x = self.norm(x) * mask[:, :, None]
        return x.sum(1) / mask.sum(1, keepdim=True)


@MODELS.register_module()
class HuggingFaceTextEncoder(BaseModule):
    """Any ``AutoModel`` whose output has a ``last_hidden_state``.

    A text is the state of its first token, BERT's ``[CLS]``. It works with transformers 4 and 5,
    but mmpretrain 1.x cannot be imported with version 5, nor mmdet where mmpretrain is installed.

    Args:
        name_or_path: Name of the model, such as ``distilbert-base-uncased``, or a folder with it.
            Without a network set the environment variable ``HF_HUB_OFFLINE=1`` and pass a folder or
            a cached name.
        max_length: Most tokens of a text; iSogCLR's authors take 30.
    """

    def __init__(self, name_or_path: str, max_length: int = 30) -> None:
        super().__init__()
        check_at_least(3, max_length=max_length)
        install = "`pip install 'transformers<5'`, or use type='mmrank.TextTransformer'"
        with required_package('transformers', "type='mmrank.HuggingFaceTextEncoder'", install):
            from transformers import AutoModel, AutoTokenizer
        # Else transformers asks on the terminal whether to run code of the folder.
        self.tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=False)
        self.model, found = AutoModel.from_pretrained(
            name_or_path, output_loading_info=True, trust_remote_code=False
        )
        # The pooler is not used.
        if missing := [x for x in found['missing_keys'] if not x.startswith('pooler.')]:
            what = f'{name_or_path}: its weights lack {len(missing)} of the model'
            fix = 'name the folder of a model with its own weights'
            raise UserError(f'{what}, the first is {min(missing)}, which would be random', fix)
        # mmengine would call its init_weights over the weights just read.
        self.model.is_init = True
        self.max_length = max_length
        self.out_channels = self.model.config.hidden_size

    def forward(self, texts: list[str]) -> Tensor:
        """(n, W) floats of n strings."""
        device = next(self.model.parameters()).device
        if not texts:
            return torch.zeros(0, self.out_channels, device=device)
        cut = dict(padding=True, truncation=True, max_length=self.max_length)
        tokens = self.tokenizer(list(texts), **cut, return_tensors='pt')
        names = ('input_ids', 'attention_mask')
        tokens = {k: tokens[k].to(device, non_blocking=True) for k in names}
        return self.model(**tokens).last_hidden_state[:, 0]
