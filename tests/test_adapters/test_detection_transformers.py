"""What the DETRs of transformers have beside test_detectors.py, and how they are fine-tuned."""

import re
import subprocess
import sys
from pathlib import Path

import adapter_models as models
import pytest
import torch
from torchvision.ops import box_convert, box_iou
from torchvision.transforms.functional import to_pil_image

from mmrank.adapters import load_ranking_state, remove_ranking_loss, use_ranking_loss
from mmrank.errors import UserError
from mmrank.losses import StableAPLoss

transformers = pytest.importorskip('transformers')

ROOT = Path(__file__).resolve().parents[2]


def batch():
    """Pixels and labels, as the models of transformers take them."""
    pixels, targets = models.batch()
    return pixels, [dict(class_labels=t['labels'], boxes=t['boxes']) for t in targets]


def detector():
    return models.build('RTDetr')


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


#: What a user without mmrank runs.
USE = """
import sys
sys.modules['mmrank'] = None
from transformers import pipeline
found = pipeline('object-detection', 'tuned', threshold=0.0)('image.png')
assert {x['label'] for x in found} <= {'ball', 'cube', 'cone', 'none'}, found
best = max(found, key=lambda x: x['score'])
print(best['label'], *best['box'].values())
"""


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['RTDetr', 'LwDetr', 'RfDetr'])
def test_new_head_trainer_and_pipeline(kind, tmp_path, monkeypatch):
    if not hasattr(transformers, f'{kind}Config'):
        pytest.skip('transformers 5 has it')
    monkeypatch.chdir(tmp_path)
    size = dict(height=models.SIZE, width=models.SIZE)
    processor = transformers.RTDetrImageProcessor(size=size)
    trained = use_ranking_loss(models.build(kind, dropout=0.0), StableAPLoss())
    models.train(kind, trained, 60 if kind == 'RTDetr' else 150, 2e-3)
    for part in (remove_ranking_loss(trained), processor):
        part.save_pretrained('pretrained')

    names = dict(enumerate(('none', 'ball', 'cube', 'cone')))
    model = transformers.AutoModelForObjectDetection.from_pretrained(
        'pretrained', id2label=names, ignore_mismatched_sizes=True
    )
    use_ranking_loss(model, StableAPLoss())
    images, targets = models.batch()
    data = [
        dict(pixel_values=x, labels=dict(class_labels=y['labels'] + 1, boxes=y['boxes']))
        for x, y in zip(images, targets)
    ] * 8
    options = transformers.TrainingArguments(
        'runs',
        num_train_epochs=3,
        learning_rate=1e-3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        remove_unused_columns=False,
        report_to='none',
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model,
        options,
        train_dataset=data,
        data_collator=lambda rows: dict(
            pixel_values=torch.stack([x['pixel_values'] for x in rows]),
            labels=[x['labels'] for x in rows],
        ),
    )
    trainer.train()
    # The checkpoints of the trainer have the state of the loss, and it is resumed.
    last = model.loss_function.rankings['last'].mean_positive
    seen = last.num_updates.clone()
    assert seen > 0
    last.num_updates.zero_()
    options.num_train_epochs = 4
    trainer.train(resume_from_checkpoint=True)
    assert last.num_updates > seen
    for part in (remove_ranking_loss(model), processor):
        part.save_pretrained('tuned')
    to_pil_image(images[1].clamp(0, 1)).save('image.png')
    done = subprocess.run([sys.executable, '-c', USE], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    label, *box = done.stdout.split()
    assert label == 'cube'
    expected = box_convert(targets[1]['boxes'], 'cxcywh', 'xyxy') * models.SIZE
    assert box_iou(torch.tensor([[*map(float, box)]]), expected) > 0.5
