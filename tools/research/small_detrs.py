"""Detectors of the DETR family of about a million parameters, from random weights."""

import copy

from torch import Tensor, nn

from mmrank.adapters import use_ranking_loss
from mmrank.errors import UserError
from training_plan import loss_of


def build(method: dict, num_labels: int) -> nn.Module:
    """The detector of a method of a plan with its loss; see detr.py."""
    kind = method.get('model', 'rtdetr')
    model = _of_transformers(kind, num_labels=num_labels, **method.get('config', {}))
    if 'loss' in method:
        use_ranking_loss(model, loss_of(method['loss']))
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
        raise UserError(f'model={kind!r} is unknown. Fix: rtdetr, dfine or rfdetr')
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
