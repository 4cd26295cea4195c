"""What is ranked: raw scores, or a function of them."""

import torch
from torch import Tensor


def _sigmoid(scores: Tensor) -> Tensor:
    # In half precision all scores near 1 would tie.
    return scores.to(
        torch.promote_types(scores.dtype, torch.float32)
    ).sigmoid()


#: By what the losses' ``activation`` says.
ACTIVATIONS = {'none': lambda scores: scores, 'sigmoid': _sigmoid}
