"""Text encoders of Hugging Face's transformers, an optional dependency."""

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.registry import MODELS

POOLINGS = ('first', 'mean')


@MODELS.register_module()
class HuggingFaceTextEncoder(BaseModule):
    """Any ``AutoModel`` whose output has a ``last_hidden_state``.

    It works with transformers 4 and 5, but mmpretrain 1.x cannot be imported beside version 5, nor
    mmdet where mmpretrain is installed.

    Args:
        name_or_path: Name of the model, such as ``distilbert-base-uncased``, or a folder with it.
            Without a network set the environment
            variable ``HF_HUB_OFFLINE=1`` and pass a folder or a cached name.
        max_length: Most tokens of a text; 30 is what iSogCLR's authors take.
        pooling: ``first``: state of the first token, as BERT's ``[CLS]``.
            ``mean``: mean over the tokens.
        pretrained: False: only its architecture, with random weights.
        init_cfg: See mmengine's ``BaseModule``.
        revision: Commit, tag or branch of the hub from which the files come;
            a commit makes a training repeatable. None: the main branch.

    Attributes:
        out_channels: Width W of its states.

    Raises:
        ImportError: If transformers is not installed.
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        name_or_path: str,
        max_length: int = 30,
        pooling: str = 'first',
        pretrained: bool = True,
        init_cfg: dict | None = None,
        revision: str | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        if pooling not in POOLINGS:
            raise ValueError(f'pooling={pooling!r} is unknown; use one of {POOLINGS}')
        if max_length < 3:
            raise ValueError(f'max_length must be at least 3, got {max_length!r}')
        try:
            from transformers import AutoConfig, AutoModel, AutoTokenizer
        except ModuleNotFoundError as error:
            if (error.name or '').partition('.')[0] != 'transformers':
                raise
            raise ImportError(
                "type='mmrank.HuggingFaceTextEncoder' needs transformers, which is not installed. "
                "Fix: `pip install 'transformers<5'`, or use type='mmrank.TextTransformer'"
            ) from error
        self.tokenizer = AutoTokenizer.from_pretrained(name_or_path, revision=revision)
        if pretrained:
            self.model = AutoModel.from_pretrained(name_or_path, revision=revision)
        else:
            config = AutoConfig.from_pretrained(name_or_path, revision=revision)
            self.model = AutoModel.from_config(config)
        # mmengine would call its init_weights over the weights just read.
        self.model.is_init = True
        self.max_length, self.pooling = max_length, pooling
        self.out_channels = self.model.config.hidden_size

    def forward(self, texts: list[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: n strings.

        Returns:
            (n, W) floats.
        """
        device = next(self.model.parameters()).device
        if not texts:
            return torch.zeros(0, self.out_channels, device=device)
        tokens = self.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors='pt',
        )
        names = ('input_ids', 'attention_mask')
        tokens = {k: tokens[k].to(device, non_blocking=True) for k in names}
        states = self.model(**tokens).last_hidden_state
        if self.pooling == 'first':
            return states[:, 0]
        mask = tokens['attention_mask'][:, :, None].to(states.dtype)
        return (states * mask).sum(1) / mask.sum(1)
