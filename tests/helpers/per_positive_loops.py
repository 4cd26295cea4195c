"""The error-driven losses as their papers define them: a loop over positives.

Each function takes 1-D logits and targets (> 0 positive, 0 negative, < 0 left out) and returns its
values and the gradient by the logits.
"""

import torch


def _step(x, delta):
    return (x / (2 * delta) + 0.5).clamp(0, 1)


def _split(logits, targets):
    return logits[targets > 0], logits[targets == 0]


def _join(logits, targets, pos_grad, neg_grad):
    grad = torch.zeros_like(logits)
    grad[targets > 0] = pos_grad / len(pos_grad)
    grad[targets == 0] = neg_grad / len(pos_grad)
    return grad


def ap_loop(logits, targets, delta=1.0, interpolate=True):
    """Interpolated AP-Loss and its gradient; there must be a positive."""
    pos, neg = _split(logits, targets)
    pos_grad, neg_grad = torch.zeros_like(pos), torch.zeros_like(neg)
    best, total = 0.0, 0.0
    for i in pos.argsort():
        among = _step(pos - pos[i], delta)
        among[i] = 0
        above = _step(neg - pos[i], delta)
        rank = 1 + among.sum() + above.sum()
        precision = 1 - above.sum() / rank
        best = torch.maximum(precision, torch.as_tensor(best))
        used = best if interpolate else precision
        total += 1 - used
        pos_grad[i] = used - 1
        if precision < 1:
            neg_grad += above / rank * ((1 - used) / (1 - precision))
    return total / len(pos), _join(logits, targets, pos_grad, neg_grad)


def alrp_loop(logits, targets, box_errors, delta=1.0, eps=1e-5):
    """Both parts of aLRP and the gradients by logits and box errors."""
    pos, neg = _split(logits, targets)
    pos_grad, neg_grad = torch.zeros_like(pos), torch.zeros_like(neg)
    box_grad = torch.zeros_like(pos)
    classification = localisation = 0.0
    for i in range(len(pos)):
        among = _step(pos - pos[i], delta)
        among[i] = 0
        above = _step(neg - pos[i], delta)
        false_positives = above.sum()
        rank = 1 + among.sum() + false_positives
        classification += false_positives / rank
        box_share = among / rank
        box_share[i] = 1 / rank
        box_grad += box_share
        localisation += (box_share * box_errors).sum()
        if false_positives > eps:
            error = (false_positives + (among * box_errors).sum()) / rank
            pos_grad[i] = -error
            neg_grad += error * above / false_positives
    n = len(pos)
    grad = _join(logits, targets, pos_grad, neg_grad)
    return classification / n, localisation / n, grad, box_grad / n


def rank_sort_loop(logits, targets, delta=0.5, eps=1e-10):
    """Both parts of Rank & Sort and the gradient of each."""
    pos, neg = _split(logits, targets)
    quality = targets[targets > 0]
    neg_grad, no_grad = torch.zeros_like(neg), torch.zeros_like(neg)
    rank_grad, sort_grad = torch.zeros_like(pos), torch.zeros_like(pos)
    ranking = sorting = 0.0
    for i in range(len(pos)):
        among = _step(pos - pos[i], delta)
        above = _step(neg - pos[i], delta)
        false_positives = above.sum()
        error = false_positives / (among.sum() + false_positives)
        ranking += error
        if false_positives > eps:
            rank_grad[i] -= error
            neg_grad += error * above / false_positives
        in_order = among * (quality >= quality[i])
        missorted = among * (quality < quality[i])
        current = (among * (1 - quality)).sum() / among.sum()
        target = (in_order * (1 - quality)).sum() / in_order.sum()
        sorting += current - target
        if missorted.sum() > eps:
            sort_grad[i] -= current - target
            sort_grad += (current - target) * missorted / missorted.sum()
    n = len(pos)
    return (
        ranking / n,
        sorting / n,
        _join(logits, targets, rank_grad, neg_grad),
        _join(logits, targets, sort_grad, no_grad),
    )
