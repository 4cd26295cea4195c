"""Small heads of the DETR family and a batch for them, shared by tests."""

import torch
from mmengine.config import Config
from small_heads import BOXES, CONFIGS, STABLE_AP, built, head_kind, make_truths

CLASSES, LAYERS, QUERIES, WIDTH, GROUPS = 3, 2, 10, 16, 2
_SHARED = dict(share_pred_layer=False, num_pred_layer=LAYERS)
_TWO_STAGE = dict(share_pred_layer=False, num_pred_layer=LAYERS + 1, as_two_stage=True)
QUERY_HEADS = {
    'DETRHead': dict(num_layers=LAYERS),
    'ConditionalDETRHead': dict(num_layers=LAYERS),
    'DABDETRHead': dict(num_layers=LAYERS),
    'DeformableDETRHead': _SHARED,
    'DeformableDETRHead, two stages': _TWO_STAGE,
    'DINOHead': _TWO_STAGE,
}
_STOCK = Config.fromfile(CONFIGS / 'deformable_detr/deformable-detr_r50_16xb2-50e_coco.py').model
ASSIGNER = _STOCK.train_cfg.assigner


def query_head_config(name, loss_cls=STABLE_AP, listwise=True, **kwargs):
    """Config of a small head, listwise unless set otherwise."""
    stock = name.partition(',')[0]
    own = {**QUERY_HEADS[name]}
    if not listwise:
        own.pop('num_layers', None)
    config = dict(
        head_kind(stock, listwise),
        num_classes=CLASSES,
        embed_dims=WIDTH,
        loss_cls=loss_cls,
        loss_bbox=_STOCK.bbox_head.loss_bbox,
        loss_iou=_STOCK.bbox_head.loss_iou,
        train_cfg=dict(assigner=ASSIGNER),
        test_cfg=dict(max_per_img=5),
        **own,
    )
    config.update(kwargs)
    return config


def build_query_head(name, loss_cls=STABLE_AP, listwise=True, **kwargs):
    return built(query_head_config(name, loss_cls, listwise, **kwargs), listwise)


def shown_queries(name, head):
    """What a head shows of the random output of a decoder."""
    generator = torch.Generator().manual_seed(2)

    def random(*shape):
        return torch.rand(*shape, generator=generator)

    hidden = torch.randn(LAYERS, 2, QUERIES, WIDTH, generator=generator)
    references = {
        'DETRHead': (),
        'ConditionalDETRHead': (random(2, QUERIES, 2),),
        'DABDETRHead': (random(LAYERS, 2, QUERIES, 4),),
    }.get(name, ([random(2, QUERIES, 4)] * LAYERS,))
    _, metas = query_batch()
    with torch.no_grad():
        return head.predict_by_feat(*head(hidden, *references), metas)


def query_batch(boxes=BOXES):
    """Ground truths and meta information of two images."""
    truths = make_truths(boxes, CLASSES)
    meta = dict(img_shape=(128, 128), scale_factor=(1, 1))
    return truths, [meta] * len(truths)


def query_inputs(name, boxes=BOXES, seed=1):
    """Arguments of ``loss_by_feat`` for random outputs of a decoder."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    def boxes_of(*shape):
        box = torch.rand(*shape, generator=generator) * 0.4 + 0.1
        return box.requires_grad_()

    truths, metas = query_batch(boxes)
    images, denoising = len(truths), 0
    if name == 'DINOHead':
        most = max(len(truth) for truth in truths)
        denoising = 2 * most * GROUPS
    queries = QUERIES + denoising
    args = [random(LAYERS, images, queries, CLASSES), boxes_of(LAYERS, images, queries, 4)]
    if 'two stages' in name or name == 'DINOHead':
        args += [random(images, 30, CLASSES), boxes_of(images, 30, 4)]
    elif name == 'DeformableDETRHead':
        args += [None, None]
    args += [truths, metas]
    if name == 'DINOHead':
        args.append(dict(num_denoising_queries=denoising, num_denoising_groups=GROUPS))
    return args
