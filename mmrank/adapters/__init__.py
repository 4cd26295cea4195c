"""Losses of mmrank in detectors and trainers of other libraries.

Importing this package imports no other library; each file serves one, and imports it when it is
first used.
"""

from importlib import import_module

_HOMES = {
    'MeanAveragePrecisionEvaluator': 'sentence_evaluator',
    'OpenCLIPLoss': 'clip_losses',
    'SaveLossState': 'sentence_losses',
    'SentenceContrastLoss': 'sentence_losses',
    'SentenceInBatchLoss': 'sentence_losses',
    'SentenceRetrievalLoss': 'sentence_losses',
    'load_ranking_state': 'detection_transformers',
    'remove_ranking_loss': 'detectors',
    'use_contrastive_loss': 'clip_losses',
    'use_ranking_loss': 'detectors',
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """Import an adapter when it is first used."""
    if name in _HOMES:
        return getattr(import_module(f'{__name__}.{_HOMES[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
