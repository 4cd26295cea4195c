"""Sigmoid focal loss, each element on its own."""

import torch
from torch import Tensor

from mmrank.tensors import at_least_float32

#: Below this a probability counts as this in a logarithm.
_SMALLEST = torch.finfo(torch.float32).tiny


def _class_weights(weight: Tensor, target: Tensor) -> Tensor:
    """Return the weight of the class of each row, shape (N,); background has 1."""
    padded = torch.cat([weight, weight.new_ones(1)])
    known = (target >= 0) & (target < len(weight))
    return padded[target.where(known, target.new_tensor(len(weight)))]


def _sigmoid_terms(input: Tensor, target: Tensor, alpha: float) -> tuple:
    """Return probabilities, 1 - those, and the signed weights of positives and negatives."""
    input = at_least_float32(input)
    positive = target[:, None] == torch.arange(input.shape[1], device=input.device)
    probability = input.sigmoid()
    return probability, 1 - probability, -alpha * positive, (alpha - 1) * ~positive


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each of (N, C) logits; target C is background."""
    p, q, positives, negatives = _sigmoid_terms(input, target, alpha)
    loss = positives * q.pow(gamma) * p.clamp(min=_SMALLEST).log()
    loss = loss + negatives * p.pow(gamma) * q.clamp(min=_SMALLEST).log()
    if weight.numel():
        loss = loss * _class_weights(weight, target)[:, None]
    output.copy_(loss)


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Write the derivative of each loss; see :func:`sigmoid_focal_loss_forward`."""
    p, q, positives, negatives = _sigmoid_terms(input, target, alpha)
    grad = positives * q.pow(gamma) * (q - gamma * p * p.clamp(min=_SMALLEST).log())
    grad = grad + negatives * p.pow(gamma) * (gamma * q * q.clamp(min=_SMALLEST).log() - p)
    if weight.numel():
        grad = grad * _class_weights(weight, target)[:, None]
    grad_input.copy_(grad)
