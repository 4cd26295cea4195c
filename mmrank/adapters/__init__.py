"""Losses of mmrank in detectors and trainers of other libraries.

Importing this package imports no other library; each file serves one, and imports it when it is
first used.
"""

from importlib import import_module

_HOMES = {
    'SentenceContrastLoss': 'mmrank.adapters.sentence_losses',
    'SentenceInBatchLoss': 'mmrank.adapters.sentence_losses',
    'SentenceRetrievalLoss': 'mmrank.adapters.sentence_losses',
    'SaveLossState': 'mmrank.adapters.sentence_losses',
    'load_ranking_state': 'mmrank.adapters.detection_transformers',
    'remove_ranking_loss': 'mmrank.adapters.detectors',
    'use_ranking_loss': 'mmrank.adapters.detectors',
}

__all__ = [
    'SaveLossState',
    'SentenceContrastLoss',
    'SentenceInBatchLoss',
    'SentenceRetrievalLoss',
    'load_ranking_state',
    'remove_ranking_loss',
    'use_ranking_loss',
]


def __getattr__(name: str) -> object:
    """Import an adapter when it is first used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
