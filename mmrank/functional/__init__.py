"""Pure functions of losses and metrics. A module is imported when a name is first used."""

from importlib import import_module

#: Public names by the module that defines them.
_MODULES = {
    'mmrank.distributed': 'all_reduce_sum',
    'mmrank.calibration.calibration_error': (
        'ReliabilityBins expected_calibration_error localisation_aware_calibration_error '
        'reliability_bins'
    ),
    'mmrank.calibration.monotone_map': 'interpolated_map keep_order platt_map',
    'mmrank.functional.metrics.average_precision': 'auroc average_precision count_at_or_above',
    'mmrank.functional.metrics.best_positive_rank': 'best_positive_rank',
    'mmrank.functional.metrics.k_nearest_votes': 'k_nearest_votes',
    'mmrank.functional.metrics.retrieval.input': 'StoredEmbeddings',
    'mmrank.functional.metrics.retrieval.metrics': (
        'RetrievalCurves RetrievalFigures nearest_in_gallery recall_curve retrieval_curves '
        'retrieval_metrics'
    ),
    'mmrank.functional.metrics.top_k_inner_product': 'top_k_inner_product',
    'mmrank.functional.ranking.auc': 'auc_lists auc_loss',
    'mmrank.functional.ranking.blackbox_ap': 'blackbox_ap_lists blackbox_ap_loss',
    'mmrank.functional.ranking.dr_loss': (
        'distributional_ranking dr_loss dr_loss_lists softmax_mean'
    ),
    'mmrank.functional.ranking.error_driven.alrp_loss': (
        'ALRP alrp_loss alrp_loss_lists error_driven_alrp'
    ),
    'mmrank.functional.ranking.error_driven.ap_loss': 'ap_loss ap_loss_lists error_driven_ap',
    'mmrank.functional.ranking.error_driven.rank_sort': (
        'RankSort error_driven_rank_sort rank_sort_loss rank_sort_loss_lists'
    ),
    'mmrank.functional.ranking.error_driven.update': 'piecewise_linear_step',
    'mmrank.functional.ranking.lists': (
        'count_negatives gather_positives positive_index ranking_function score_lists'
    ),
    'mmrank.functional.ranking.listwise_ap': 'listwise_ap_lists listwise_ap_loss',
    'mmrank.functional.ranking.mauc': 'MAUCTerms mauc_terms',
    'mmrank.functional.ranking.rank_weights': (
        'mean_one normalised_positive_rank practical_weight smoothed_rank theorem1_weight'
    ),
    'mmrank.functional.ranking.semi_variance': (
        'batch_semi_variance semi_variance upper_semi_variance'
    ),
    'mmrank.functional.ranking.smooth_ap': 'smooth_ap_lists smooth_ap_loss',
    'mmrank.functional.ranking.soap': 'soap_lists soap_loss soap_of_ranks surrogate_ranks',
    'mmrank.functional.ranking.soprc': 'SOPRCTerms soprc_lists soprc_loss soprc_terms',
    'mmrank.functional.ranking.stable_ap': (
        'StableAPTerms WeightedRisk rank_weighted_risk stable_ap_lists stable_ap_loss '
        'stable_ap_of_risk stable_ap_outer stable_ap_terms'
    ),
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
    'mmrank.losses.pairs.pair_sums': 'pairwise_surrogate_mean pairwise_surrogate_sum',
    'mmrank.losses.pairs.surrogates': (
        'SURROGATES Logistic OneSidedHuber OneSidedSigmoid Sigmoid SquaredHinge Surrogate '
        'build_surrogate one_sided_huber one_sided_huber_derivative one_sided_sigmoid'
    ),
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
