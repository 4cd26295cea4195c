"""Pure functions of losses and metrics."""

from mmrank.imports import lazy_package

#: Public names by the module that holds them; ``__init__.pyi`` tells type checkers the same.
_NAMES = {
    'mmrank.calibration.calibration_error': (
        'expected_calibration_error',
        'localisation_aware_calibration_error',
        'reliability_bins',
    ),
    'mmrank.calibration.monotone_map': ('keep_order',),
    'mmrank.distributed': ('all_reduce_sum',),
    'mmrank.functional.metrics.average_precision': (
        'auroc',
        'average_precision',
        'graded_average_precision',
        'ndcg',
        'partial_auroc',
    ),
    'mmrank.functional.metrics.k_nearest_votes': ('k_nearest_votes',),
    'mmrank.functional.metrics.retrieval.input': ('StoredEmbeddings',),
    'mmrank.functional.metrics.retrieval.levels': ('level_metrics',),
    'mmrank.functional.metrics.retrieval.metrics': (
        'RetrievalCurves',
        'RetrievalFigures',
        'nearest_in_gallery',
        'recall_curve',
        'retrieval_curves',
        'retrieval_metrics',
    ),
    'mmrank.losses.auc.auc': ('auc_loss',),
    'mmrank.losses.contrastive.grad_cache': ('grad_cache',),
    'mmrank.losses.contrastive.info_nce': ('info_nce_loss',),
    'mmrank.losses.contrastive.sogclr': ('global_contrastive_loss',),
    'mmrank.losses.pairs': ('pairwise_surrogate_sum',),
    'mmrank.losses.pairs_smooth': (
        'Logistic',
        'OneSidedHuber',
        'Sigmoid',
        'SquaredHinge',
        'Surrogate',
    ),
    'mmrank.losses.ranking.alrp': ('alrp_loss',),
    'mmrank.losses.ranking.ap_loss': ('ap_loss',),
    'mmrank.losses.ranking.blackbox_ap': ('blackbox_ap_loss',),
    'mmrank.losses.ranking.dr_loss': ('dr_loss',),
    'mmrank.losses.ranking.listwise_ap': ('listwise_ap_loss',),
    'mmrank.losses.ranking.rank_sort': ('rank_sort_loss',),
    'mmrank.losses.ranking.smooth_ap': ('smooth_ap_loss',),
    'mmrank.losses.ranking.soprc': ('semi_variance', 'soprc_loss'),
    'mmrank.losses.ranking.stable_ap': ('stable_ap_loss',),
    'mmrank.losses.retrieval.hierarchical': ('hap_loss', 'ndcg_loss'),
    'mmrank.losses.retrieval.recall_at_k': ('recall_at_k_loss',),
    'mmrank.losses.split_lists': ('split_lists',),
    'mmrank.losses.two_tower.in_batch': ('in_batch_loss',),
    'mmrank.losses.two_tower.pointwise': ('Pointwise',),
    'mmrank.losses.unit_rows': ('unit_rows',),
    'mmrank.state.score_vector': ('interpolate_scores',),
}

__all__, __getattr__, __dir__ = lazy_package(__name__, _NAMES)
