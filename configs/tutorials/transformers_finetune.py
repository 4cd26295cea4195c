"""Fine-tune a detector of transformers on other classes: stable AP, or with --vfl its own."""
import sys

import torch
import transformers as hf
from torchmetrics.detection import MeanAveragePrecision
from torchvision.datasets import CocoDetection
from torchvision.ops import box_convert

from mmrank.adapters import remove_ranking_loss, use_ranking_loss
from mmrank.losses import StableAPLoss, VarifocalLoss

start, root, out = 'work_dirs/rt_detr', 'data/shapes_mine', 'work_dirs/finetuned'
processor = hf.AutoImageProcessor.from_pretrained(start)
data = {split: CocoDetection(f'{root}/{split}', f'{root}/annotations/{split}.json')
        for split in ('train', 'val')}
names = {x['id']: x['name'] for x in data['train'].coco.dataset['categories']}
prepared = {split: [processor(x, annotations=dict(image_id=0, annotations=y), return_tensors='pt')
                    for x, y in own] for split, own in data.items()}
model = hf.AutoModelForObjectDetection.from_pretrained(
    start, id2label={0: 'none', **names}, ignore_mismatched_sizes=True)
use_ranking_loss(model, VarifocalLoss() if '--vfl' in sys.argv else StableAPLoss())
options = hf.TrainingArguments(
    out, num_train_epochs=3, per_device_train_batch_size=8, learning_rate=5e-4, max_grad_norm=0.1,
    remove_unused_columns=False, report_to='none', save_strategy='no', use_cpu=True)
hf.Trainer(model, options, train_dataset=prepared['train'], data_collator=lambda batch: dict(
    pixel_values=torch.cat([x.pixel_values for x in batch]),
    labels=[x.labels[0] for x in batch])).train()
for part in (processor, remove_ranking_loss(model)):
    part.save_pretrained(out)
val = prepared['val']
shown = model.eval().requires_grad_(False)(torch.cat([x.pixel_values for x in val]))
true = [dict(boxes=box_convert(y['boxes'], 'cxcywh', 'xyxy'), labels=y['class_labels'])
        for x in val for y in x.labels]
found = MeanAveragePrecision()(processor.post_process_object_detection(shown, 0.0), true)
print('mAP: {map:.3f} AP50: {map_50:.3f}'.format(**found))
