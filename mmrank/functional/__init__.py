"""Pure functions of losses and metrics. A module is imported when a name is first used."""

from importlib import import_module

#: Public names by the module that defines them.
_MODULES = {
    '.calibration.calibration_error': (
        'ReliabilityBins expected_calibration_error localisation_aware_calibration_error '
        'reliability_bins'
    ),
    '.calibration.monotone_map': 'interpolated_map keep_order platt_map',
    '.contrastive.cyclic_consistency': 'cyclic_consistency',
    '.contrastive.decorrelation': (
        'VICRegTerms cross_correlation_terms off_diagonal_square_sum vicreg_terms'
    ),
    '.contrastive.global_contrastive': (
        'global_contrastive_loss moving_log_mean temperature_gradient temperature_step'
    ),
    '.contrastive.info_nce': 'dual_temperature_losses info_nce_loss info_nce_losses',
    '.contrastive.negative_terms': (
        'NegativeTerms negative_terms two_modality_terms two_view_terms'
    ),
    '.contrastive.sigmoid_contrastive': 'sigmoid_losses',
    '.contrastive.spectral_contrastive': 'capped_rows spectral_losses',
    '.contrastive.unit_rows': 'unit_rows',
    '.distributed': 'all_reduce_sum',
    '.gradient_caching': 'grad_cache',
    '.in_batch.coefficients': 'IN_BATCH_MODES',
    '.in_batch.cross_sum': 'weighted_cross_sum',
    '.in_batch.embedding_loss': 'in_batch_embedding_loss',
    '.in_batch.loss': 'in_batch_loss',
    '.in_batch.pointwise': 'POINTWISE LogisticPointwise Pointwise SquarePointwise build_pointwise',
    '.in_batch.softmax': 'in_batch_softmax_losses',
    '.key_ring': 'KeyRing',
    '.long_tail.class_balance': 'effective_number_weights ldam_margins ldam_sigmoid ldam_softmax',
    '.metrics.average_precision': 'auroc average_precision count_at_or_above',
    '.metrics.best_positive_rank': 'best_positive_rank',
    '.metrics.k_nearest_votes': 'k_nearest_votes',
    '.metrics.retrieval.curves': 'RetrievalCurves recall_curve retrieval_curves',
    '.metrics.retrieval.figures': 'RetrievalFigures',
    '.metrics.retrieval.metrics': 'retrieval_metrics',
    '.metrics.retrieval.nearest': 'nearest_in_gallery',
    '.metrics.retrieval.stored': 'StoredEmbeddings',
    '.metrics.top_k_inner_product': 'top_k_inner_product',
    'mmrank.losses.pairs.pair_sums': 'pairwise_surrogate_mean pairwise_surrogate_sum',
    'mmrank.losses.pairs.surrogates': (
        'SURROGATES Logistic OneSidedHuber OneSidedSigmoid Sigmoid SquaredHinge Surrogate '
        'build_surrogate one_sided_huber one_sided_huber_derivative one_sided_sigmoid'
    ),
    '.ranking.auc': 'auc_lists auc_loss',
    '.ranking.blackbox_ap': 'blackbox_ap_lists blackbox_ap_loss',
    '.ranking.dr_loss': 'distributional_ranking dr_loss dr_loss_lists softmax_mean',
    '.ranking.error_driven.alrp_loss': 'ALRP alrp_loss alrp_loss_lists error_driven_alrp',
    '.ranking.error_driven.ap_loss': 'ap_loss ap_loss_lists error_driven_ap',
    '.ranking.error_driven.rank_sort': (
        'RankSort error_driven_rank_sort rank_sort_loss rank_sort_loss_lists'
    ),
    '.ranking.error_driven.update': 'piecewise_linear_step',
    '.ranking.lists': (
        'count_negatives gather_positives positive_index ranking_function score_lists'
    ),
    '.ranking.listwise_ap': 'listwise_ap_lists listwise_ap_loss',
    '.ranking.mauc': 'MAUCTerms mauc_terms',
    '.ranking.rank_weights': (
        'mean_one normalised_positive_rank practical_weight smoothed_rank theorem1_weight'
    ),
    '.ranking.score_interpolation': 'interpolate_scores',
    '.ranking.semi_variance': 'batch_semi_variance semi_variance upper_semi_variance',
    '.ranking.smooth_ap': 'smooth_ap_lists smooth_ap_loss',
    '.ranking.soap': 'moving_ranks soap_lists soap_loss soap_of_ranks surrogate_ranks',
    '.ranking.soprc': 'SOPRCTerms soprc_lists soprc_loss soprc_terms',
    '.ranking.stable_ap': (
        'StableAPTerms WeightedRisk rank_weighted_risk stable_ap_lists stable_ap_loss '
        'stable_ap_of_risk stable_ap_outer stable_ap_terms'
    ),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    """Import the module of a name when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = globals()[name] = getattr(import_module(_PLACES[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__
