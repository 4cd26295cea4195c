"""Deep feature mixup: mixes the features of one class before the stages of a backbone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mmrank.made_class import MadeClass, host_class
from mmrank.registry import MODELS
from mmrank.settings import check_within


class FeatureMixupMixin(MadeClass):
    """Mixin for backbones: the batch doubles before each named stage.

    ``mixup_share`` is u; see :func:`DeepFeatureMixup`.
    """

    name_prefix = 'Mixup'
    doc_suffix = 'with deep feature mixup'

    def __init__(self, *args, mixup_stages: tuple[str, ...], mixup_share: float, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        check_within('[0, 1]', u=mixup_share)
        stages = dict(self.named_modules())
        for name in mixup_stages:
            if name not in stages:
                children = sorted(dict(self.named_children()))
                what = f'stages={mixup_stages!r}: the backbone has no {name!r}'
                raise ValueError(f'{what}, only {children} and what is in them')
        self.mixup_share = mixup_share
        self.copies = 2 ** len(mixup_stages)
        self._labels: Tensor | None = None
        for name in mixup_stages:
            stages[name].register_forward_pre_hook(self._join)

    @contextmanager
    def mixing(self, labels: Tensor) -> Iterator[None]:
        """Within, a forward returns its batch ``copies`` times, the originals first.

        Row i of every copy is of the (B,) integer class ``labels[i]``.
        """
        self._labels = labels
        try:
            yield
        finally:
            self._labels = None

    def _join(self, stage, inputs: tuple) -> tuple:
        if self._labels is None:
            return inputs
        features, *others = inputs
        batch = features.size(0)
        # A rank may have no image at all.
        labels = self._labels.repeat(batch // max(self._labels.size(0), 1))
        if labels.size(0) != batch:
            raise RuntimeError(
                f'a stage got {batch} features for {self._labels.size(0)} labels; deep feature '
                'mixup requires a backbone with sequential stages'
            )
        dtype = torch.promote_types(features.dtype, torch.float32)
        # In (0, 1]: the weights of a class never sum to 0.
        v = 1 - torch.rand(batch, device=features.device, dtype=dtype)
        share = v * (labels[:, None] == labels)
        share = (1 - self.mixup_share) * share / share.sum(1, keepdim=True)
        flat = features.flatten(1)
        # Half precision is kept for the large product alone.
        mixed = self.mixup_share * flat + share.to(flat.dtype) @ flat
        mixed = mixed.to(features.dtype).view_as(features)
        return (torch.cat([features, mixed]), *others)


@MODELS.register_module()
def DeepFeatureMixup(
    backbone: dict, stages: tuple[str, ...] = ('layer3', 'layer4'), u: float = 0.9
):
    """Build a backbone that mixes features of one class as it trains.

    Before each named stage the batch is joined by as many mixed samples:
    ``u z_i + (1-u) sum_j v_j z_j`` over the samples j of i's class, with random ``v_j`` that sum to
    1 in each class. (The paper prints ``v_j ~ U(0,1)``, without the sum; the scale of a mixed
    feature would then grow with the size of its class.) With two stages the batch is four times as
    large in the end. Source: stable AP (2025), section 7.1.1.2 (2).

    A mixed sample is query and gallery entry, also of the image that it stems from, whose label and
    index it keeps. Names in checkpoints, ``init_cfg`` and the options are the backbone's. Each
    process mixes its own images, so give it whole classes (``mmrank.PKSampler`` does).
    ``mmrank.EmbeddingRetriever`` passes it the labels; nothing is mixed in evaluation.

    Args:
        backbone: Config of a backbone that runs its stages one after the other, e.g.
            ``dict(type='mmpretrain.ResNet', depth=50)``.
        stages: Names of the submodules of the backbone before which to mix, such as ``layer3`` or
            ``blocks.2``.
        u: Share of the sample's own features, in [0, 1].
    """
    host = host_class('backbone.type', backbone['type'], 'mmpretrain.ResNet')
    mixed = FeatureMixupMixin.class_for(host)
    return MODELS.build(
        {**backbone, 'type': mixed, 'mixup_stages': tuple(stages), 'mixup_share': u}
    )
