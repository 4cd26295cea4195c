"""Small detectors of other libraries, of random weights, behind one interface."""

from importlib import import_module
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.ops import box_convert

CLASSES, SIZE, QUERIES, LAYERS = 3, 64, 12, 2
TORCHVISION = ['RetinaNet', 'FCOS', 'FasterRCNN', 'MaskRCNN']
DENOISING = ['RTDetr', 'RTDetrV2', 'DFine', 'Deimv2']
#: Point-wise losses of their criterion: focal loss.
FOCAL = ['DeformableDetr', 'ConditionalDetr', 'DabDetr']
#: What transformers 5 has.
GROUPED = ['LwDetr', 'RfDetr']
TRANSFORMERS = [*DENOISING, *FOCAL, *GROUPED]
#: Heads of YOLO.
YOLO = ['YOLO11', 'YOLO26', 'LibreYOLO9', 'LibreYOLO9E2E']
#: Decoders and criterions that descend from those of RT-DETR's authors, and their class loss.
LIGHTLY = 'lightly_train._task_models.object_detection_components.'
LIBRE = 'libreyolo.models.'
AUTHORS = {
    'LTDETR': (LIGHTLY, 'dfine_decoder.DFINETransformer', 'dfine_criterion.DFINECriterion'),
    'LTDETR1': (
        LIGHTLY,
        'rtdetrv2_decoder.RTDETRTransformerv2',
        'rtdetrv2_criterion.RTDETRCriterionv2',
    ),
    'LibreDFINE': (LIBRE, 'dfine.decoder.DFINETransformer', 'dfine.loss.DFINECriterion'),
    'LibreDEIM': (LIBRE, 'deim.decoder.DEIMTransformer', 'deim.loss.DEIMCriterion'),
}
KINDS = [*TORCHVISION, *TRANSFORMERS, 'rfdetr', *YOLO, *AUTHORS]


class Backbone(nn.Module):
    """Two levels of 32 channels, as many as GroupNorm has groups."""

    out_channels = 32

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
        )
        self.down = nn.Conv2d(32, 32, 3, stride=2, padding=1)

    def forward(self, x):
        x = self.stem(x).relu()
        return {'0': x, '1': self.down(x).relu()}


def build(kind, seed=0, **config):
    """A detector in training mode; ``config`` is that of transformers."""
    torch.manual_seed(seed)
    if kind == 'rfdetr':
        return _rfdetr().train()
    if kind in TORCHVISION:
        return _torchvision(kind).train()
    if kind.startswith('LibreYOLO'):
        return _libreyolo(kind).train()
    if kind in YOLO:
        return _ultralytics(kind).train()
    if kind in AUTHORS:
        return _authors(kind, config.get('num_denoising', 10)).train()
    import transformers as hf

    resnet = dict(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1] * 4,
        layer_type='basic',
        out_features=['stage2', 'stage3', 'stage4'],
    )
    options = dict(num_labels=CLASSES, d_model=32, num_queries=QUERIES, decoder_ffn_dim=64)
    options['decoder_layers'] = LAYERS
    if kind in DENOISING:
        options.update(
            backbone_config=hf.RTDetrResNetConfig(**resnet),
            freeze_backbone_batch_norms=False,
            encoder_in_channels=[16] * 3,
            encoder_hidden_dim=32,
            encoder_ffn_dim=32,
            encoder_attention_heads=2,
            decoder_in_channels=[32] * 3,
            decoder_attention_heads=2,
            num_denoising=10,
            hidden_expansion=1.0,
            depth_mult=1.0,
            **(dict(lqe_hidden_dim=8) if kind in ('DFine', 'Deimv2') else {}),
        )
    elif kind in FOCAL:
        levels = dict(num_feature_levels=3, with_box_refine=True)
        if kind != 'DeformableDetr':
            levels = {}
            resnet['out_features'] = ['stage4']
        if kind == 'DabDetr':
            options['hidden_size'] = options.pop('d_model')
        options.update(
            backbone_config=hf.ResNetConfig(**resnet),
            # The default of transformers 4 is a name.
            **({} if hf.__version__.startswith('5') else {'backbone': None}),
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            encoder_layers=1,
            encoder_ffn_dim=64,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            auxiliary_loss=True,
            **levels,
        )
    else:
        vit = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=SIZE)
        if kind == 'LwDetr':
            backbone = hf.LwDetrViTConfig(
                **vit,
                pretrain_image_size=SIZE,
                patch_size=8,
                num_windows=4,
                window_block_indices=[0],
                out_indices=[1, 2],
            )
            options['projector_scale_factors'] = [1.0]
        else:
            names = dict(out_features=['stage1', 'stage2'], num_register_tokens=0)
            backbone = hf.RfDetrDinov2Config(**vit, patch_size=8, num_windows=2, **names)
        options.update(
            backbone_config=backbone,
            c2f_num_blocks=1,
            decoder_self_attention_heads=2,
            decoder_cross_attention_heads=2,
            group_detr=3,
        )
    config = getattr(hf, f'{kind}Config')(**{**options, **config})
    return getattr(hf, f'{kind}ForObjectDetection')(config).train()


def _torchvision(kind):
    from torchvision.models import detection
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    ratios = 1 if kind == 'FCOS' else 2
    anchors = AnchorGenerator(((16,), (32,)), ((1.0, 2.0)[:ratios],) * 2)
    sizes = dict(min_size=SIZE, max_size=SIZE)
    if kind.endswith('RCNN'):
        from torchvision.ops import MultiScaleRoIAlign

        pools = dict(box_roi_pool=MultiScaleRoIAlign(['0', '1'], 5, 2))
        if kind == 'MaskRCNN':
            pools['mask_roi_pool'] = MultiScaleRoIAlign(['0', '1'], 6, 2)
        return getattr(detection, kind)(
            Backbone(),
            num_classes=CLASSES + 1,
            rpn_anchor_generator=anchors,
            box_batch_size_per_image=32,
            rpn_batch_size_per_image=32,
            box_score_thresh=0.0,
            **pools,
            **sizes,
        )
    model = getattr(detection, kind)(
        Backbone(), num_classes=CLASSES, anchor_generator=anchors, score_thresh=0.0, **sizes
    )
    if kind == 'RetinaNet':
        # Logits of the first step differ enough to be ranked.
        nn.init.normal_(model.head.classification_head.cls_logits.weight)
    return model


def _rfdetr():
    from rfdetr.config import RFDETRNanoConfig, TrainConfig
    from rfdetr.training import RFDETRModelModule

    config = RFDETRNanoConfig(
        pretrain_weights=None,
        num_classes=CLASSES - 1,  # it adds one
        resolution=SIZE,
        positional_encoding_size=SIZE // 8,
        patch_size=8,
        out_feature_indexes=[1, 2],
        num_queries=QUERIES,
        num_select=QUERIES,
        group_detr=3,
        hidden_dim=32,
        sa_nheads=2,
        ca_nheads=2,
        dec_layers=LAYERS,
        device='cpu',
    )
    return RFDETRModelModule(config, TrainConfig(dataset_dir='.', output_dir='.'))


def _ultralytics(kind):
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel, yaml_model_load

    config = yaml_model_load(f'{kind.lower()}n.yaml')
    config['scales'] = {'n': [0.5, 0.125, 256]}
    model = DetectionModel(config, nc=CLASSES, verbose=False)
    model.args = get_cfg(overrides={'cls': 1.0})
    model.end2end = kind == 'YOLO26'
    return model


def _libreyolo(kind):
    from libreyolo.models.yolo9.nn import LibreYOLO9Model
    from libreyolo.models.yolo9_e2e.nn import LibreYOLO9E2EModel

    made = LibreYOLO9E2EModel if kind.endswith('E2E') else LibreYOLO9Model
    return made('t', nb_classes=CLASSES, img_size=SIZE)


class LTDETRObjectDetectionTrain(nn.Module):
    """Holds a model and its criterion, as the trainers and configs of the libraries do."""

    def __init__(self, decoder, criterion):
        super().__init__()
        self.model = nn.Module()
        self.model.backbone = Backbone()
        self.model.decoder = decoder
        self.criterion = criterion

    def forward(self, images, targets=None):
        return self.model.decoder([*self.model.backbone(images).values()], targets)

    def get_export_state_dict(self):
        return self.model.state_dict()


def _authors(kind, num_denoising):
    home, decoder, criterion = AUTHORS[kind]

    def find(name):
        module, _, name = name.rpartition('.')
        return getattr(import_module(home + module), name)

    decoder = find(decoder)(
        CLASSES,
        hidden_dim=32,
        num_queries=QUERIES,
        feat_channels=[32, 32],
        feat_strides=[8, 16],
        num_levels=2,
        nhead=2,
        num_layers=LAYERS,
        dim_feedforward=32,
        num_denoising=num_denoising,
    )
    kind = 'mal' if criterion.endswith('DEIMCriterion') else 'vfl'
    weights = dict(loss_bbox=5.0, loss_giou=2.0, loss_fgl=0.15, loss_ddf=1.5)
    weights[f'loss_{kind}'] = 1.0
    local = ['local'] if 'RTDETR' not in criterion else []
    matcher = find(
        'matcher.HungarianMatcher' if home == LIGHTLY else 'dfine.matcher.HungarianMatcher'
    )
    matcher = matcher(dict(cost_class=2, cost_bbox=5, cost_giou=2), use_focal_loss=True)
    criterion = find(criterion)(
        matcher, weights, [kind, 'boxes', *local], alpha=0.75, num_classes=CLASSES
    )
    return LTDETRObjectDetectionTrain(decoder, criterion)


def batch(dtype=torch.float32, boxes=True):
    """Three images, with two, one and no rectangle in the colour of its class; (n, 4) centres."""
    g = torch.Generator().manual_seed(1)
    images = 0.2 * torch.rand(3, 3, SIZE, SIZE, generator=g)
    true = torch.tensor([[12, 14, 18, 20], [40, 44, 28, 30], [46, 16, 24, 18.0]]) / SIZE
    objects = [([0, 2], true[:2]), ([1], true[2:]), ([], true[:0])]
    targets = []
    for image, (labels, own) in zip(images, objects):
        for label, (x0, y0, x1, y1) in zip(labels, _corners(own).int().tolist()):
            image[label, y0:y1, x0:x1] += 0.8
        targets.append(dict(labels=torch.tensor(labels).long(), boxes=own.to(dtype)))
    if not boxes:
        images, targets = images[2:].repeat(3, 1, 1, 1), [targets[2]] * 3
    return images.to(dtype), targets


def _corners(boxes):
    return box_convert(boxes, 'cxcywh', 'xyxy') * SIZE


def _nested(images):
    from rfdetr.utilities.tensors import nested_tensor_from_tensor_list

    return nested_tensor_from_tensor_list([*images])


def compute(kind, model, images, targets):
    """``total``, and its ``parts`` by name."""
    if kind in TORCHVISION:
        first = 1 if kind.endswith('RCNN') else 0
        own = [dict(labels=t['labels'] + first, boxes=_corners(t['boxes'])) for t in targets]
        if kind == 'MaskRCNN':
            for t in own:
                t['masks'] = _masks(t['boxes'])
        parts = model([*images], own)
        return SimpleNamespace(total=sum(parts.values()), parts=parts)
    if kind == 'rfdetr':
        outputs = model.model(_nested(images), targets)
        parts, weights = model.criterion(outputs, targets), model.criterion.weight_dict
        total = sum(weights[key] * loss for key, loss in parts.items() if key in weights)
        return SimpleNamespace(total=total, parts=parts)
    if kind.startswith('LibreYOLO'):
        objects = torch.zeros(len(images), 2, 5, dtype=images.dtype)
        for row, t in zip(objects, targets):
            row[: len(t['labels'])] = torch.cat(
                [t['labels'][:, None], box_convert(t['boxes'], 'cxcywh', 'xyxy')], 1
            )
        parts = {}
        model.head._loss_fn = None
        criterion = model.head._get_loss_fn(images.device)
        for name in ('dense_loss', 'exclusive_loss')[: 1 + kind.endswith('E2E')]:
            branch = getattr(criterion, name, criterion)
            branch.cls_loss = _noted(parts, name, branch.cls_loss)
        found = model(images, objects)
        model.head._loss_fn = None
        return SimpleNamespace(total=found['total_loss'], parts=parts)
    if kind in YOLO:
        return _compute_ultralytics(model, images, targets)
    if kind in AUTHORS:
        settings = dict(world_size=1) if AUTHORS[kind][0] == LIGHTLY else {}
        parts = model.criterion(model(images, targets), targets, **settings)
        return SimpleNamespace(total=sum(parts.values()), parts=parts)
    own = [dict(class_labels=t['labels'], boxes=t['boxes']) for t in targets]
    outputs = model(pixel_values=images, labels=own)
    return SimpleNamespace(total=outputs.loss, parts=outputs.loss_dict)


def _noted(parts, name, compute, part=lambda found: found):
    """The same function; ``parts`` has under a name what it returned, or a part of that."""

    def loss(*args):
        found = compute(*args)
        parts[name] = part(found)
        return found

    return loss


def _compute_ultralytics(model, images, targets):
    index = [torch.full_like(t['labels'], i) for i, t in enumerate(targets)]
    labels = torch.cat([t['labels'] for t in targets])[:, None]
    objects = dict(batch_idx=torch.cat(index), cls=labels)
    objects['bboxes'] = torch.cat([t['boxes'] for t in targets]).float()
    model.criterion = model.init_criterion()
    parts = {}
    for name in ('one2many', 'one2one'):
        branch = getattr(model.criterion, name, model.criterion if name == 'one2many' else None)
        if branch is not None:
            branch.loss = _noted(parts, name, branch.loss, lambda x: x[0][1] / len(images))
    total = model.loss(dict(img=images, **objects))[0].sum()
    return SimpleNamespace(total=total, parts=parts)


def train(kind, model, steps, lr=1e-3):
    """AdamW on the batch; the rate falls to 0 in the last third of the steps.

    Batch norms keep their averages from half of the steps on: those of three images of four pixels
    differ between training and eval mode enough to move boxes.
    """
    images, targets = batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    for step in range(steps):
        optimizer.param_groups[0]['lr'] = lr * min(1, 3 * (1 - step / steps))
        model.train()
        for module in model.modules():
            if isinstance(module, _BatchNorm) and step > steps // 2:
                module.eval()
        loss = compute(kind, model, images, targets).total
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def _masks(boxes):
    masks = torch.zeros(len(boxes), SIZE, SIZE, dtype=torch.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, boxes.int().tolist()):
        mask[y0:y1, x0:x1] = 1
    return masks


@torch.no_grad()
def predict(kind, model, images):
    """Boxes (corners), scores and labels of each image, in eval mode."""
    model.eval()
    if kind in TORCHVISION:
        found = model([*images])
        first = 1 if kind.endswith('RCNN') else 0
        return [dict(x, labels=x['labels'] - first) for x in found]
    if kind in YOLO:
        found = model(images)
        found = found['predictions'] if 'Libre' in kind else found[0]
        if kind != 'YOLO26':  # (B, 4 + C, n)
            boxes, scores = found.transpose(1, 2).split([4, CLASSES], -1)
            scores, labels = scores.max(-1)
            if 'Libre' not in kind:
                boxes = box_convert(boxes, 'cxcywh', 'xyxy')
            found = [boxes, scores[..., None], labels[..., None]]
            found = torch.cat(found, -1)
        found = [x[x[:, 4].argsort(descending=True, stable=True)[:20]] for x in found]
        return [dict(boxes=x[:, :4], scores=x[:, 4], labels=x[:, 5].long()) for x in found]
    sizes = torch.full((len(images), 2), SIZE)
    if kind == 'rfdetr':
        return model.postprocess(model.model(_nested(images)), sizes)
    if kind in AUTHORS:
        found = model(images)
        scores, labels = found['pred_logits'].sigmoid().max(-1)
        found = zip(_corners(found['pred_boxes']), scores, labels)
        orders = scores.argsort(descending=True)
        return [
            dict(boxes=x[order], scores=y[order], labels=z[order])
            for (x, y, z), order in zip(found, orders)
        ]
    from transformers import DeformableDetrImageProcessor, RTDetrImageProcessor

    processor = RTDetrImageProcessor if kind in DENOISING else DeformableDetrImageProcessor
    return processor().post_process_object_detection(
        model(pixel_values=images), threshold=0.0, target_sizes=sizes
    )


def rankings(model):
    """The losses of a model by name, those of the encoder's proposals left out."""
    for owner in (model, getattr(model, 'head', None), getattr(model, 'model', None)):
        owner = getattr(owner, 'decoder', owner)
        if hasattr(owner, 'rankings'):
            return dict(owner.rankings)
    if hasattr(model, 'head'):
        return {'all': model.head.ranking_loss}
    if hasattr(model, 'roi_heads'):
        return {'all': model.roi_heads.ranking_loss}
    losses = getattr(model, 'criterion', None) or model.loss_function
    own = losses.rankings
    return {name: own[name] for name in own if type(own[name]) is type(own['last'])}
