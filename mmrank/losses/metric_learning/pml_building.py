"""Parts of pytorch-metric-learning from configs."""

from collections.abc import Mapping

from torch import nn

INSTALL = "pip install 'pytorch-metric-learning>=2.9'"
# Options of a loss or miner that are modules, and where these are found.
_PARTS = {'distance': 'distances', 'reducer': 'reducers', 'embedding_regularizer': 'regularizers'}
_TRIPLET_LOSSES = ('TripletMarginLoss', 'MarginLoss')


def build_part(place: str, config: Mapping, name: str) -> nn.Module:
    """Build a loss, miner, distance, reducer or regulariser.

    Args:
        place: ``losses``, ``miners``, ``distances`` ...
        config: ``type`` and keyword arguments; those that are modules are configs themselves.
        name: What the config is called in messages.

    Returns:
        The module.

    Raises:
        ImportError: If pytorch-metric-learning is not installed.
        KeyError: If it has no such type.
        TypeError: If the config is none, or an argument does not fit.
    """
    package = _package(place)
    if not isinstance(config, Mapping) or 'type' not in config:
        raise TypeError(
            f"{name} must be a dict with a 'type', as in "
            f"dict(type='ContrastiveLoss'), got {config!r}"
        )
    settings = dict(config)
    kind = settings.pop('type')
    part = getattr(package, kind, None) if isinstance(kind, str) else None
    if part is None:
        raise KeyError(f'{name}.type={kind!r} is not in pytorch_metric_learning.{place}')
    for key, of in _PARTS.items():
        if settings.get(key) is not None:
            settings[key] = build_part(of, settings[key], f'{name}.{key}')
    if place == 'losses' and kind == 'FastAPLoss':
        from .pml_fast_ap import FastAPOfPairs as part
    return part(**settings)


def check_loss(loss: nn.Module) -> None:
    """Raise for a loss that does not accept the pairs to take.

    Raises:
        ValueError: If it takes its pairs from the labels alone, or with a setting that is wrong for
            a gallery.
    """
    losses = _package('losses')
    kind = type(loss).__name__
    fits = (
        losses.GenericPairLoss,
        losses.FastAPLoss,
        *(getattr(losses, name) for name in _TRIPLET_LOSSES),
    )
    if not isinstance(loss, fits):
        raise ValueError(
            f'loss.type={kind!r} takes its pairs from the labels alone, so a '
            'query could not be left out of its own gallery. Use a pair loss '
            '(ContrastiveLoss, MultiSimilarityLoss, NTXentLoss, CircleLoss '
            '...), TripletMarginLoss, MarginLoss or FastAPLoss; SmoothAP is '
            "type='mmrank.SmoothAPLoss'"
        )
    if getattr(loss, 'triplets_per_anchor', 'all') != 'all':
        raise ValueError(
            f'triplets_per_anchor={loss.triplets_per_anchor!r} of {kind} '
            'would have no effect: triplets are those of the gallery; use '
            "'all', or a miner"
        )
    if getattr(loss, 'swap', False):
        raise ValueError(
            f'swap=True of {kind} compares positives with negatives as if the '
            'gallery were the queries; set it to False'
        )
    for part in loss.modules():
        if type(part).__name__ in ('PerAnchorReducer', 'DoNothingReducer'):
            raise ValueError(
                f'{type(part).__name__} does not return one number for '
                'queries and a gallery; use MeanReducer or AvgNonZeroReducer'
            )


def takes_triplets(loss: nn.Module) -> bool:
    """Whether a loss is one of triplets, not of pairs."""
    losses = _package('losses')
    return isinstance(loss, tuple(getattr(losses, name) for name in _TRIPLET_LOSSES))


def _package(place: str):
    try:
        from pytorch_metric_learning import distances, losses, miners, reducers, regularizers
    except ImportError as error:
        raise ImportError(f'mmrank.PMLLoss needs pytorch-metric-learning: {INSTALL}') from error
    return {
        'distances': distances,
        'losses': losses,
        'miners': miners,
        'reducers': reducers,
        'regularizers': regularizers,
    }[place]
