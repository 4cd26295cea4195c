"""A small RT-DETR of transformers, from scratch: stable AP, or with --vfl its own."""
import sys

import torch
import transformers as hf
from torchmetrics.detection import MeanAveragePrecision
from torchvision.datasets import CocoDetection
from torchvision.ops import box_convert

from mmrank.adapters import remove_ranking_loss, use_ranking_loss
from mmrank.losses import StableAPLoss, VarifocalLoss

processor, root = hf.RTDetrImageProcessor(size=dict(height=128, width=128)), 'data/shapes_tiny'
train, val = ([processor(x, annotations=dict(image_id=0, annotations=y), return_tensors='pt')
               for x, y in CocoDetection(f'{root}/{split}', f'{root}/annotations/{split}.json')]
              for split in ('train', 'val'))
torch.manual_seed(0)
model = hf.RTDetrForObjectDetection(hf.RTDetrConfig(
    backbone_config=hf.RTDetrResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64, 96, 128], depths=[1] * 4, layer_type='basic',
        out_features=['stage2', 'stage3', 'stage4']), freeze_backbone_batch_norms=False,
    encoder_in_channels=[64, 96, 128], encoder_hidden_dim=64, encoder_attention_heads=4,
    encoder_ffn_dim=128, d_model=64, decoder_in_channels=[64] * 3, decoder_attention_heads=4,
    decoder_ffn_dim=128, decoder_layers=2, num_queries=30, num_denoising=20, num_labels=5))
use_ranking_loss(model, VarifocalLoss() if '--vfl' in sys.argv else StableAPLoss())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 401):
    batch = [train[i] for i in torch.randint(len(train), (8,))]
    optimizer.zero_grad()
    pixels = torch.cat([x.pixel_values for x in batch])
    model(pixels, labels=[x.labels[0] for x in batch]).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
out = model.eval().requires_grad_(False)(torch.cat([x.pixel_values for x in val]))
true = [dict(boxes=box_convert(y['boxes'], 'cxcywh', 'xyxy'), labels=y['class_labels'])
        for x in val for y in x.labels]
found = MeanAveragePrecision()(processor.post_process_object_detection(out, 0.0), true)
print('mAP: {map:.3f} AP50: {map_50:.3f}'.format(**found))
for part in (processor, remove_ranking_loss(model)):
    part.save_pretrained('work_dirs/rt_detr')
