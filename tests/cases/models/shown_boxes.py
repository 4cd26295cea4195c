"""What a head shows at test time, with a centre that matters."""

import torch
from covered_heads import MORE_HEADS, build_covered, covered_inputs
from small_heads import HEADS

#: Their scores are not the plain output of one layer.
NOT_FOLDED = {
    'TOODHead': 'products of probabilities',
    'YOLOFHead': 'not the plain output of a layer with a bias',
    'YOLOXHead': 'product of class and objectness',
}
FOLDED = sorted({**HEADS, **MORE_HEADS}.keys() - NOT_FOLDED)


def build_spread(name, loss, listwise=True, **kwargs):
    """A covered head whose scores differ by more than rounding."""
    head = build_covered(name, loss, listwise=listwise, **kwargs)
    return spread_scores(head)


def spread_scores(model, factor=8):
    """Weights of the classification that differ more than initial ones."""
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() > 1 and 'cls' in key:
                weight.mul_(factor)
    return model


def set_centre(loss, start=-4.0):
    """Centres that differ by class, where there are several."""
    for key, state in loss.named_buffers():
        if key.endswith('mean_positive.mean'):
            state.copy_(start + 0.3 * torch.arange(state.numel()))
        if key.endswith('score_vector.vector'):
            rows, points = state.shape
            state.copy_(torch.linspace(-6, -2, points).expand(rows, points))
            state += 0.3 * torch.arange(rows)[:, None]


def predict_covered(name, head):
    """Boxes that a covered head shows of random features."""
    features, _, metas = covered_inputs(name)
    head.eval()
    head.training = 'GA' in name  # masked convolutions require CUDA
    with torch.no_grad():
        outs = head(features)
        return head.predict_by_feat(*outs, batch_img_metas=metas)


def assert_same_boxes(found, expected, pixels=1e-4):
    """The same boxes, scores to 1e-6 and labels, and some of them."""
    assert sum(map(len, expected)) > 0
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        torch.testing.assert_close(one.scores, other.scores, atol=1e-6, rtol=0)
        torch.testing.assert_close(one.labels, other.labels)
        torch.testing.assert_close(one.bboxes, other.bboxes, atol=pixels, rtol=0)
