"""What the DETRs of transformers have beside test_detectors.py."""

import re
from pathlib import Path

import adapter_models as models
import pytest
import torch

from mmrank.adapters import load_ranking_state, remove_ranking_loss, use_ranking_loss
from mmrank.errors import UserError
from mmrank.losses import RankSortLoss, StableAPLoss

transformers = pytest.importorskip('transformers')

ROOT = Path(__file__).resolve().parents[2]


def batch():
    """Pixels and labels, as the models of transformers take them."""
    pixels, targets = models.batch()
    return pixels, [dict(class_labels=t['labels'], boxes=t['boxes']) for t in targets]


def detector():
    return models.build('RTDetr')


def test_quality_is_the_iou_of_the_matched_boxes():
    model, calls = use_ranking_loss(detector(), RankSortLoss()), []
    model.loss_function.rankings['last'].register_forward_pre_hook(
        lambda _, args, told: calls.append((*args, told)), with_kwargs=True
    )
    pixels, labels = batch()
    out = model(pixel_values=pixels, labels=labels)
    ((_, target, told),) = calls
    target = target.view(3, -1)
    boxes = out.pred_boxes[:, -target.size(1) :]
    expected = []
    for image, query in (target < models.CLASSES).nonzero().tolist():
        truth = labels[image]
        at = truth['class_labels'].tolist().index(target[image, query])
        a, b = boxes[image, query], truth['boxes'][at]
        low = torch.maximum(a[:2] - a[2:] / 2, b[:2] - b[2:] / 2)
        high = torch.minimum(a[:2] + a[2:] / 2, b[:2] + b[2:] / 2)
        inter = (high - low).clamp(min=0).prod()
        expected.append(inter / (a[2:].prod() + b[2:].prod() - inter))
    torch.testing.assert_close(
        told['quality'], torch.stack(expected).detach(), rtol=1e-4, atol=1e-6
    )
    assert told['quality'].max() > 0.01
    assert not told['quality'].requires_grad


def test_the_block_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = use_ranking_loss(detector(), StableAPLoss())
    pixels, labels = batch()
    model(pixel_values=pixels, labels=labels)
    model.eval()
    with torch.no_grad():
        shown = model(pixel_values=pixels).logits
    text = (ROOT / 'docs/pages/users/other_detectors.md').read_text('utf-8')
    (block,) = re.findall(r'```python\n(# .*?)```', text, re.DOTALL)
    names = dict(
        model=model,
        RTDetrForObjectDetection=transformers.RTDetrForObjectDetection,
        StableAPLoss=StableAPLoss,
        use_ranking_loss=use_ranking_loss,
        load_ranking_state=load_ranking_state,
        remove_ranking_loss=remove_ranking_loss,
    )
    exec(block, names)
    assert names['model'] is not model
    plain = type(model).from_pretrained('work_dirs/plain').eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(pixel_values=pixels).logits, shown, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(transformers.__version__ < '5', reason='transformers 5 has it')
def test_a_weight_that_the_proposals_loss_lacks_is_refused():
    with pytest.raises(UserError, match='mal_alpha=0.5 .* Fix: mal_alpha=None'):
        use_ranking_loss(models.build('Deimv2', mal_alpha=0.5), StableAPLoss())
