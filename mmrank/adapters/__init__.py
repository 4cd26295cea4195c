"""Losses of mmrank in detectors and trainers of other libraries.

Importing this package imports no other library; each file serves one, and imports it when it is
first used.
"""

from mmrank.imports import lazy_package

#: Public names by the module that holds them; ``__init__.pyi`` tells type checkers the same.
_NAMES = {
    '.clip_losses': ('OpenCLIPLoss', 'use_contrastive_loss'),
    '.detection_transformers': ('load_ranking_state',),
    '.detectors': ('remove_ranking_loss', 'use_ranking_loss'),
    '.sentence_losses': (
        'MeanAveragePrecisionEvaluator',
        'SaveLossState',
        'SentenceContrastLoss',
        'SentenceInBatchLoss',
        'SentenceRetrievalLoss',
    ),
}

__all__, __getattr__, __dir__ = lazy_package(__name__, _NAMES)
