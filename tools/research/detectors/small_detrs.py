"""Detectors of the DETR family of about a million parameters, from random weights."""

import transformers as hf
from torch import nn

from mmrank.adapters import use_ranking_loss
from mmrank.errors import UserError
from plans.study_plan import loss_of


def build(method: dict, num_labels: int) -> nn.Module:
    """The detector of a method of a plan with its loss; see detr.py."""
    options = dict(
        num_labels=num_labels,
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
    kind = method.get('model', 'rtdetr')
    if kind == 'rtdetr':
        options |= dict(
            feat_strides=[8, 16],
            encoder_in_channels=[64, 96],
            decoder_in_channels=[64, 64],
            num_feature_levels=2,
            encode_proj_layers=[1],
            backbone_config=dict(
                model_type='rt_detr_resnet',
                layer_type='basic',
                embedding_size=32,
                hidden_sizes=[32, 64, 96],
                depths=[1, 1, 1],
                out_features=['stage2', 'stage3'],
            ),
        )
        model = hf.RTDetrForObjectDetection(hf.RTDetrConfig(**options))
    elif kind == 'dfine':
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
        model = hf.DFineForObjectDetection(hf.DFineConfig(**options))
    else:
        raise UserError(f'model={kind!r} is unknown. Fix: rtdetr or dfine')
    if 'loss' in method:
        use_ranking_loss(model, loss_of(method['loss']))
    return model
