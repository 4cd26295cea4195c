"""A part of an EfficientNet of timm, for cheap fine-tuning."""

from collections.abc import Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.errors import UserError
from mmrank.imports import required_package
from mmrank.registry import MODELS
from mmrank.settings import check_within


@MODELS.register_module()
class TIMMStages(BaseModule):
    """Stages ``start`` to ``stop`` of an EfficientNet of timm.

    Stage i is ``blocks[i]``, the first one with the stem before it; the last stage is
    ``conv_head``. Parameters keep the names that they have in ``mmpretrain.TIMMBackbone``, so each
    part loads the checkpoint of the whole network, and the parts together are the whole network.

    A network whose first stages stay as they are is trained in one of two ways, with the same
    values: ``frozen_stages`` on images, or ``start`` on the stored outputs of these stages, which
    ``tools/dataset_converters/cache_features.py`` writes and ``mmrank.LoadCachedFeatures`` reads.

    With ``out_indices`` it is the backbone of a detector. ``checkpoint='mmrank://efficientnet_lite0'``
    has ImageNet weights for ``'tf_efficientnet_lite0'``, whose stages 2, 4 and 6 have the strides
    8, 16 and 32, and 40, 112 and 320 channels.

    Args:
        model_name: Model of timm with ``conv_stem``, ``blocks`` and ``conv_head``, such as
            ``'tf_efficientnet_lite0'``.
        start: First stage; above 0 the input is the output of stage
            ``start - 1``.
        stop: Stage behind the last; None: to the end of the network.
        frozen_stages: The first stages that are not trained, counted from stage 0. Their batch norm
            layers stay in evaluation.
        freeze_bn: All batch norm layers keep their running statistics and their weights.
        out_indices: Stages whose maps are returned, and the last of which ends the network. None:
            the last one.
    """

    def __init__(
        self,
        model_name: str,
        start: int = 0,
        stop: int | None = None,
        frozen_stages: int = 0,
        freeze_bn: bool = False,
        out_indices: Sequence[int] | None = None,
        init_cfg: dict | list | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        install = "pip install 'mmrank[pretrained]'"
        with required_package('timm', "type='mmrank.TIMMStages'", install):
            import timm
        try:
            model = timm.create_model(model_name)
        except RuntimeError as error:
            raise UserError(
                f'timm has no model {model_name!r}: {error}. '
                "timm.list_models('*efficientnet*') names those it has"
            ) from error
        if not all(hasattr(model, x) for x in ('conv_stem', 'bn1', 'blocks', 'bn2')):
            raise UserError(
                f'{model_name} of timm is {type(model).__name__}, which has no conv_stem, blocks '
                'and conv_head. Fix: an EfficientNet; for other models mmpretrain.TIMMBackbone'
            )
        model.reset_classifier(0, '')
        # mmdet's NumClassCheckHook takes whatever has it for a head.
        del model.num_classes
        whole = {*model.state_dict()}
        count = len(model.blocks) + 1
        if out_indices is not None and stop is None:
            stop = max(out_indices) + 1
        end = count if stop is None else stop
        if not 0 <= start < end <= count:
            what = f'start={start}, stop={stop}: {model_name} has the stages 0 to {count - 1}'
            raise UserError(what, f'0 <= start < stop <= {count}')
        check_within(f'[0, {end}]', frozen_stages=frozen_stages)
        for index in out_indices or ():
            check_within(f'[{start}, {end - 1}]', out_indices=index)
        if start:
            model.conv_stem = nn.Identity()
            model.bn1 = nn.Identity()
        if end < count:
            model.conv_head = nn.Identity()
            model.bn2 = nn.Identity()
        for index in range(count - 1):
            if not start <= index < end:
                model.blocks[index] = nn.Identity()
        self.model_name = model_name
        self._elsewhere = whole - {*model.state_dict()}
        # Convolutions of a CPU train 1.4 times as fast on memory laid out so.
        self.timm_model = model.to(memory_format=torch.channels_last)
        self.start = start
        self.stop = end
        self.frozen_stages = frozen_stages
        self.freeze_bn = freeze_bn
        self.out_indices = [end - 1] if out_indices is None else sorted(out_indices)
        for layer in self._frozen():
            layer.requires_grad_(False)
        self.train(self.training)

    def _stages(self) -> list[list[nn.Module]]:
        """The layers of every stage; those that are not here do nothing."""
        model = self.timm_model
        return [
            [model.conv_stem, model.bn1, model.blocks[0]],
            *([block] for block in model.blocks[1:]),
            [model.conv_head, model.bn2],
        ]

    def _frozen(self) -> list[nn.Module]:
        frozen = [x for s in self._stages()[: self.frozen_stages] for x in s]
        if self.freeze_bn:
            layers = self.timm_model.modules()
            frozen += [x for x in layers if isinstance(x, _BatchNorm)]
        return frozen

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args) -> None:
        """Leave out what the checkpoint of the whole network has of other stages."""
        for name in self._elsewhere:
            state_dict.pop(f'{prefix}timm_model.{name}', None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def train(self, mode: bool = True):
        super().train(mode)
        for layer in self._frozen():
            layer.eval()
        return self

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The (B, C, H', W') maps; inputs: (B, 3, H, W) or stage ``start - 1``."""
        x = inputs.contiguous(memory_format=torch.channels_last)
        maps = []
        for number, stage in enumerate(self._stages()):
            trained = number >= self.frozen_stages
            with torch.set_grad_enabled(torch.is_grad_enabled() and trained):
                for layer in stage:
                    x = layer(x)
            if number in self.out_indices:
                maps.append(x)
        return tuple(maps)
