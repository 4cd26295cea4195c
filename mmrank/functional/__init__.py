"""Pure functions of losses and metrics. A module is imported when a name is first used."""

from importlib import import_module

#: Public names by the module that defines them.
_MODULES = {
    'mmrank.calibration.calibration_error': (
        'ReliabilityBins expected_calibration_error localisation_aware_calibration_error '
        'reliability_bins'
    ),
    'mmrank.calibration.monotone_map': 'interpolated_map keep_order platt_map',
    'mmrank.distributed': 'all_reduce_sum',
    'mmrank.functional.metrics.average_precision': (
        'auroc average_precision count_at_or_above graded_average_precision'
    ),
    'mmrank.functional.metrics.best_positive_rank': 'best_positive_rank',
    'mmrank.functional.metrics.k_nearest_votes': 'k_nearest_votes',
    'mmrank.functional.metrics.retrieval.input': 'StoredEmbeddings',
    'mmrank.functional.metrics.retrieval.metrics': (
        'RetrievalCurves RetrievalFigures nearest_in_gallery recall_curve retrieval_curves '
        'retrieval_metrics'
    ),
    'mmrank.functional.metrics.top_k_inner_product': 'top_k_inner_product',
    'mmrank.losses.contrastive.base': 'unit_rows',
    'mmrank.losses.contrastive.cyclip': 'cyclic_consistency',
    'mmrank.losses.contrastive.decorrelation': (
        'VICRegTerms cross_correlation_terms off_diagonal_square_sum vicreg_terms'
    ),
    'mmrank.losses.contrastive.grad_cache': 'grad_cache',
    'mmrank.losses.contrastive.info_nce': 'info_nce_loss info_nce_losses',
    'mmrank.losses.contrastive.others': 'capped_rows dual_temperature_losses spectral_losses',
    'mmrank.losses.contrastive.ring': 'KeyRing',
    'mmrank.losses.contrastive.siglip': 'sigmoid_losses',
    'mmrank.losses.contrastive.sogclr': 'global_contrastive_loss temperature_gradient',
    'mmrank.losses.contrastive.terms': (
        'NegativeTerms negative_terms two_modality_terms two_view_terms'
    ),
    'mmrank.losses.long_tail.class_balanced_ce': 'effective_number_weights',
    'mmrank.losses.long_tail.ldam': 'ldam_margins ldam_sigmoid ldam_softmax',
    'mmrank.losses.long_tail.logit_adjusted_ce': 'log_shares',
    'mmrank.losses.pairs.pair_sums': 'OneSidedHuber Sigmoid Surrogate pairwise_surrogate_sum',
    'mmrank.losses.pairs.surrogates': (
        'Logistic OneSidedSigmoid SURROGATES SquaredHinge build_surrogate one_sided_huber '
        'one_sided_sigmoid pairwise_surrogate_mean'
    ),
    'mmrank.losses.pairs.rank_weights': 'mean_one practical_weight smoothed_rank theorem1_weight',
    'mmrank.losses.ranking.alrp': 'ALRP alrp_loss',
    'mmrank.losses.ranking.ap_loss': 'ap_loss piecewise_linear_step',
    'mmrank.losses.ranking.auc': 'auc_loss mauc_loss',
    'mmrank.losses.ranking.blackbox_ap': 'blackbox_ap_loss',
    'mmrank.losses.ranking.dr_loss': 'dr_loss softmax_mean',
    'mmrank.losses.ranking.listwise_ap': 'listwise_ap_loss',
    'mmrank.losses.ranking.rank_sort': 'RankSort rank_sort_loss',
    'mmrank.losses.ranking.smooth_ap': 'smooth_ap_loss',
    'mmrank.losses.ranking.soap': 'soap_loss',
    'mmrank.losses.ranking.soprc': 'semi_variance soprc_loss',
    'mmrank.losses.ranking.stable_ap': 'stable_ap_loss stable_ap_outer',
    'mmrank.losses.score_lists': 'like_scores split_lists',
    'mmrank.losses.two_tower.in_batch': 'IN_BATCH_MODES in_batch_embedding_loss in_batch_loss',
    'mmrank.losses.two_tower.in_batch_softmax': 'in_batch_softmax_losses',
    'mmrank.losses.two_tower.pointwise': (
        'LogisticPointwise POINTWISE Pointwise SquarePointwise build_pointwise'
    ),
    'mmrank.losses.two_tower.sums': 'weighted_cross_sum',
    'mmrank.state.sample_averages': 'TemperatureStep moving_log_mean',
    'mmrank.state.sample_ranks': 'moving_ranks',
    'mmrank.state.score_vector': 'interpolate_scores',
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    """Import the module of a name when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
