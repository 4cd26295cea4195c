"""Texts as bytes: a tokenizer that needs no vocabulary file."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class ByteTokenizer:
    """UTF-8 bytes between a start and an end token.

    Tokens are 0 for padding, 1 for the start, 2 for the end and 3 + byte.

    Args:
        max_length: Most tokens of a text, at least 3; a longer one loses its last bytes.

    Attributes:
        vocab_size: 259.

    Raises:
        ValueError: If ``max_length`` is too small.

    Example:
        >>> tokens, mask = ByteTokenizer(max_length=8)(['ab', 'c'])
        >>> tokens
        tensor([[  1, 100, 101,   2],
                [  1, 102,   2,   0]])
    """

    PAD, START, END, FIRST_BYTE = 0, 1, 2, 3
    vocab_size = FIRST_BYTE + 256

    def __init__(self, max_length: int = 77) -> None:
        if max_length < 3:
            raise ValueError(
                f'max_length must be at least 3, for start, end and a byte, got {max_length!r}'
            )
        self.max_length = max_length

    def __call__(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Turn texts into tokens.

        Args:
            texts: n strings.

        Returns:
            (n, L) int64 tokens, with L that of the longest, and (n, L) bool, True where there is
            one; on the CPU.

        Raises:
            TypeError: If one is no string.
        """
        if isinstance(texts, str) or not all(isinstance(x, str) for x in texts):
            raise TypeError(
                f'texts must be a list of strings, got {type(texts).__name__} of '
                f'{sorted({type(x).__name__ for x in texts})}'
            )
        data = [x.encode()[: self.max_length - 2] for x in texts]
        sizes = np.array([len(x) for x in data], dtype=np.int64)
        length = int(sizes.max(initial=0)) + 2
        place = np.arange(length)
        tokens = np.full((len(data), length), self.PAD, dtype=np.int64)
        tokens[:, 0] = self.START
        inner = (place >= 1) & (place <= sizes[:, None])
        joined = np.frombuffer(b''.join(data), dtype=np.uint8)
        tokens[inner] = joined.astype(np.int64) + self.FIRST_BYTE
        tokens[np.arange(len(data)), sizes + 1] = self.END
        mask = place <= sizes[:, None] + 1
        return torch.from_numpy(tokens), torch.from_numpy(mask)
