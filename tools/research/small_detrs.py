"""Detectors of the DETR family of about a million parameters, from random weights."""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from mmrank import losses

ROOT = Path(__file__).resolve().parents[2]


def build(method: dict, num_labels: int) -> nn.Module:
    """The detector of a method of a plan, see detr_losses.py, with its losses.

    It is called as the models of transformers are: with pixels, and in training with ``labels``.
    """
    kind = method.get('model', 'rtdetr')
    config = method.get('config', {})
    loss = method.get('loss')
    layers = method.get('layers', {})
    if kind == 'dino':
        return SmallDINO(num_labels, loss)
    model = _of_transformers(kind, num_labels=num_labels, **config)
    _use_losses(model, loss, layers)
    if method.get('groups') == 'apart':
        rankings = model.loss_function.rankings
        number = model.config.group_detr
        for name in [name for name in rankings if name != 'enc']:
            rankings[name] = RankedGroups(rankings[name], number, model.config.num_queries)
    return model


class RankedGroups(nn.Module):
    """Ranks each group of queries by itself, by a copy of the loss with its own state."""

    box_input = None

    def __init__(self, loss: nn.Module, groups: int, queries: int) -> None:
        super().__init__()
        self.losses = nn.ModuleList(copy.deepcopy(loss) for _ in range(groups))
        self.shape = -1, groups, queries

    def forward(self, scores: Tensor, labels: Tensor, **kwargs) -> Tensor:
        """Mean loss of the groups of (B * G * Q, C) scores and (B * G * Q,) labels."""
        scores = scores.view(*self.shape, scores.size(1))
        labels = labels.view(self.shape)
        parts = [
            loss(scores[:, i].flatten(0, 1), labels[:, i].flatten(), **kwargs)
            for i, loss in enumerate(self.losses)
        ]
        return sum(parts) / len(parts)

    def logit_centre(self) -> Tensor | None:
        """The centre of the first group, which alone is there in eval mode."""
        return self.losses[0].logit_centre()


class SmallDINO(nn.Module):
    """DINO of the blood cells' config (mmdet), stock or on a loss, as transformers' models look."""

    def __init__(self, num_labels: int, loss: dict | None) -> None:
        super().__init__()
        import mmdet.models  # noqa: F401
        from mmengine.config import Config
        from mmengine.registry import DefaultScope

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
        scores, boxes = self.model.bbox_head(inputs['hidden_states'], inputs['references'])
        return RTDetrObjectDetectionOutput(logits=scores[-1], pred_boxes=boxes[-1])


def _of_transformers(kind: str, **config) -> nn.Module:
    import transformers as hf

    if kind == 'rfdetr':
        options = dict(
            backbone_config=hf.RfDetrDinov2Config(
                hidden_size=96,
                num_hidden_layers=3,
                num_attention_heads=3,
                image_size=64,
                patch_size=8,
                num_windows=2,
                num_register_tokens=0,
                out_features=['stage1', 'stage3'],
            ),
            c2f_num_blocks=1,
            d_model=64,
            decoder_ffn_dim=128,
            decoder_layers=2,
            decoder_self_attention_heads=4,
            decoder_cross_attention_heads=4,
            num_queries=30,
        )
        return hf.RfDetrForObjectDetection(hf.RfDetrConfig(**{**options, **config}))
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
        raise SystemExit(f'model={kind!r} is unknown. Fix: rtdetr, dfine, rfdetr or dino')
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

    if loss is None:
        return
    use_ranking_loss(model, _made(loss))
    rankings = model.loss_function.rankings
    for start, other in layers.items():
        for name in [name for name in rankings if name.startswith(start)]:
            if isinstance(other, dict):
                rankings[name] = _made(other)
            else:
                rankings[name].loss_weight = other


def _made(loss: dict) -> nn.Module:
    """A loss of mmrank; not by the registry, which needs OpenMMLab."""
    own = dict(loss)
    return getattr(losses, own.pop('type').removeprefix('mmrank.'))(**own)
