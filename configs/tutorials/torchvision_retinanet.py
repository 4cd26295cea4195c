"""A small RetinaNet of torchvision, from scratch: graded AP-Loss, or with --focal its own."""
import sys

import torch
from torchmetrics.detection import MeanAveragePrecision
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
from torchvision.models import detection, resnet
from torchvision.transforms.functional import to_tensor

from mmrank.adapters import use_ranking_loss
from mmrank.losses import GradedAPLoss

def load(split, root='data/shapes_tiny'):
    coco = CocoDetection(f'{root}/{split}', f'{root}/annotations/{split}.json')
    for image, true in wrap_dataset_for_transforms_v2(coco, ('boxes', 'labels')):
        boxes = torch.as_tensor(true.get('boxes', torch.zeros(0, 4)), dtype=torch.float32)
        labels = torch.as_tensor(true.get('labels', []), dtype=torch.int64)
        yield to_tensor(image), dict(boxes=boxes, labels=labels)


torch.manual_seed(0)
net = resnet.ResNet(resnet.BasicBlock, [1] * 4)
levels = dict(layer2='0', layer3='1', layer4='2')
backbone = detection.backbone_utils.BackboneWithFPN(net, levels, [128, 256, 512], 64)
anchors = detection.anchor_utils.AnchorGenerator(
    [[s, 1.26 * s, 1.59 * s] for s in (12, 24, 48, 96)], [[1.0]] * 4)
model = detection.RetinaNet(backbone, 5, 128, 128, anchor_generator=anchors)
if '--focal' not in sys.argv:
    use_ranking_loss(model, GradedAPLoss())
train, optimizer = [*load('train')], torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 201):
    losses = model(*zip(*[train[i] for i in torch.randint(len(train), (8,))]))
    optimizer.zero_grad()
    sum(losses.values()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
images, targets = zip(*load('val'))
with torch.no_grad():
    found = MeanAveragePrecision()(model.eval()(images), [*targets])
print('mAP: {map:.3f} AP50: {map_50:.3f}'.format(**found))
