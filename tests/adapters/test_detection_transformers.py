"""What the DETRs of transformers have beside test_detectors.py, and how they are fine-tuned."""

import adapter_models as models
import pytest
import torch
from docs_blocks import PAGES, block

from mmrank.adapters import load_ranking_state, remove_ranking_loss, use_ranking_loss
from mmrank.errors import UserError
from mmrank.losses import StableAPLoss

transformers = pytest.importorskip('transformers')


def test_the_block_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = use_ranking_loss(models.build('RTDetr'), StableAPLoss())
    pixels, targets = models.batch()
    labels = [dict(class_labels=t['labels'], boxes=t['boxes']) for t in targets]
    model(pixel_values=pixels, labels=labels)
    model.eval()
    with torch.no_grad():
        shown = model(pixel_values=pixels).logits
    text = block(PAGES / 'users/other_detectors.md', 'work_dirs/plain')
    names = dict(
        model=model,
        RTDetrForObjectDetection=transformers.RTDetrForObjectDetection,
        StableAPLoss=StableAPLoss,
        use_ranking_loss=use_ranking_loss,
        load_ranking_state=load_ranking_state,
        remove_ranking_loss=remove_ranking_loss,
    )
    exec(text, names)
    assert names['model'] is not model
    plain = type(model).from_pretrained('work_dirs/plain').eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(pixel_values=pixels).logits, shown, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(transformers.__version__ < '5', reason='transformers 5 has it')
def test_a_weight_that_the_proposals_loss_lacks_is_refused():
    with pytest.raises(UserError, match='mal_alpha=0.5 .* Fix: mal_alpha=None'):
        use_ranking_loss(models.build('Deimv2', mal_alpha=0.5), StableAPLoss())
