"""Deep feature mixup around any backbone with named stages."""

from functools import cache

from mmrank.losses.loss_type import model_type
from mmrank.registry import MODELS

from .feature_mixup import FeatureMixupMixin


@cache
def mixup_class(host: type) -> type:
    """The class ``Mixup<host>``; one and the same for every call."""
    return type(
        f'Mixup{host.__name__}',
        (FeatureMixupMixin, host),
        {'__doc__': f'{host.__name__} with deep feature mixup.'},
    )


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

    As in the paper, where the batch grows fourfold, a mixed sample is a
    sample of its own: query and gallery entry, also of the image that it
    stems from. It keeps the label and the index of that image.

    The result is the backbone itself, of a subclass: names in checkpoints, ``init_cfg`` and the
    options are those of the backbone. Each process mixes its own images, so give it whole classes
    (``mmrank.PKSampler`` does).
    :func:`mmrank.models.retrievers.EmbeddingRetriever` passes it the labels; nothing is mixed in
    evaluation.

    Args:
        backbone: Config of a backbone that runs its stages one after the other, e.g.
            ``dict(type='mmpretrain.ResNet', depth=50)``.
        stages: Names of the submodules of the backbone before which to mix, such as ``layer3`` or
            ``blocks.2``.
        u: Share of the sample's own features, in [0, 1].

    Returns:
        The backbone, a subclass of ``backbone['type']``.

    Raises:
        KeyError: If the backbone is not registered.
        TypeError: If it is no class.
        ValueError: If ``u`` is out of range or a stage does not exist.

    Example:
        >>> image_encoder = [
        ...     dict(type='mmrank.DeepFeatureMixup',
        ...          backbone=dict(type='mmpretrain.ResNet', depth=50)),
        ...     dict(type='mmpretrain.GlobalAveragePooling'),
        ...     dict(type='mmpretrain.LinearNeck', in_channels=2048,
        ...          out_channels=256, norm_cfg=None)]
    """
    host = model_type(backbone['type'])
    if host is None:
        raise KeyError(
            f'backbone.type={backbone["type"]!r} is not registered; write it '
            "with its scope, as in 'mmpretrain.ResNet'"
        )
    if not isinstance(host, type):
        raise TypeError(
            f'backbone.type={backbone["type"]!r} is not a class, so its '
            'stages cannot be reached; set the backbone class itself'
        )
    return MODELS.build(
        {**backbone, 'type': mixup_class(host), 'mixup_stages': tuple(stages), 'mixup_share': u}
    )
