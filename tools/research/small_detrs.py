"""Detectors of the DETR family of about a million parameters, from random weights."""

from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]


def build(method: dict, num_labels: int) -> nn.Module:
    """The detector of a method of a plan, see detr_losses.py, with its losses.

    It is called as those of transformers are: with pixels, and in training with ``labels``.
    """
    kind, config = method.get('model', 'rtdetr'), method.get('config', {})
    loss, layers = method.get('loss'), method.get('layers', {})
    if kind == 'dino':
        return SmallDINO(num_labels, loss)
    model = _of_transformers(kind, num_labels=num_labels, **config)
    _use_losses(model, loss, layers)
    return model


class SmallDINO(nn.Module):
    """DINO of the blood cells' config (mmdet), stock or on a loss, as transformers' models look."""

    def __init__(self, num_labels: int, loss: dict | None) -> None:
        super().__init__()
        import mmdet.models  # noqa: F401
        from mmengine.config import Config
        from mmengine.registry import DefaultScope
        from transformers import RTDetrConfig

        import mmrank.models  # noqa: F401
        from mmrank.registry import MODELS

        config = Config.fromfile(ROOT / 'configs/stable_ap/dino_r18_focal_bccd.py').model
        config.pop('data_preprocessor')
        config.num_queries = 30
        config.dn_cfg.group_cfg.num_dn_queries = 20
        config.decoder.num_layers = 2
        head = config.bbox_head
        head.num_classes = num_labels
        if loss is not None:
            head.update(type='mmrank.ListwiseHead', head_type='mmdet.DINOHead')
            head.loss_cls = dict(loss)
        with DefaultScope.overwrite_default_scope('mmdet'):
            self.model = MODELS.build(config)
            self.model.init_weights()
        #: Of the matcher that tells how well the scores follow the IoU.
        self.config = RTDetrConfig()

    def forward(self, pixels: Tensor, labels: list[dict] | None = None):
        """``loss`` and ``loss_dict`` of a batch, or in eval mode ``logits`` and ``pred_boxes``."""
        from mmdet.structures import DetDataSample
        from mmengine.structures import InstanceData
        from torchvision.ops import box_convert
        from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

        size = tuple(pixels.shape[-2:])
        scale = torch.tensor(size[::-1] * 2, device=pixels.device)
        samples = [
            DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=size)) for _ in pixels
        ]
        for sample, own in zip(samples, labels or ()):
            boxes = box_convert(own['boxes'], 'cxcywh', 'xyxy') * scale
            sample.gt_instances = InstanceData(bboxes=boxes, labels=own['class_labels'])
        pixels = (pixels - 0.45) / 0.25
        if labels is not None:
            found = self.model.loss(pixels, samples)
            return RTDetrObjectDetectionOutput(loss=sum(found.values()), loss_dict=found)
        inputs = self.model.forward_transformer(self.model.extract_feat(pixels), samples)
        scores, boxes = self.model.bbox_head(**inputs)
        return RTDetrObjectDetectionOutput(logits=scores[-1], pred_boxes=boxes[-1])


def _of_transformers(kind: str, **config) -> nn.Module:
    import transformers as hf

    options = dict(
        freeze_backbone_batch_norms=False,
        encoder_in_channels=[64, 96, 128],
        encoder_hidden_dim=64,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        d_model=64,
        decoder_in_channels=[64] * 3,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        decoder_layers=2,
        num_queries=30,
        num_denoising=20,
    )
    if kind == 'rtdetr':
        options['backbone_config'] = hf.RTDetrResNetConfig(
            embedding_size=32,
            hidden_sizes=[32, 64, 96, 128],
            depths=[1] * 4,
            layer_type='basic',
            out_features=['stage2', 'stage3', 'stage4'],
        )
        return hf.RTDetrForObjectDetection(hf.RTDetrConfig(**{**options, **config}))
    if kind != 'dfine':
        raise SystemExit(f'model={kind!r} is unknown. Fix: rtdetr, dfine or dino')
    options['backbone_config'] = hf.HGNetV2Config(
        hidden_sizes=[32, 64, 96, 128],
        stem_channels=[3, 16, 32],
        stage_in_channels=[32, 32, 64, 96],
        stage_mid_channels=[16, 16, 32, 32],
        stage_out_channels=[32, 64, 96, 128],
        stage_num_blocks=[1] * 4,
        stage_numb_of_layers=[2] * 4,
        stage_downsample=[False, True, True, True],
        stage_light_block=[False, False, True, True],
        stage_kernel_size=[3, 3, 5, 5],
        out_features=['stage2', 'stage3', 'stage4'],
    )
    return hf.DFineForObjectDetection(hf.DFineConfig(**{**options, **config}))


def _use_losses(model: nn.Module, loss: dict | None, layers: dict) -> None:
    """Put the loss of a method into the model, and others into some of its layers."""
    from mmrank.adapters import use_ranking_loss
    from mmrank.registry import MODELS

    if loss is None:
        return
    use_ranking_loss(model, MODELS.build(dict(loss)))
    rankings = model.loss_function.rankings
    for start, other in layers.items():
        for name in [name for name in rankings if name.startswith(start)]:
            if isinstance(other, dict):
                rankings[name] = MODELS.build(dict(other))
            else:
                rankings[name].loss_weight = other
