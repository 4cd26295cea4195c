"""Pure functions of losses and metrics. A module is imported when a name is first used."""

from importlib import import_module

#: Public names by the module that defines them.
_MODULES = {
    'mmrank.distributed': 'all_reduce_sum',
    'mmrank.functional.calibration.calibration_error': (
        'ReliabilityBins expected_calibration_error localisation_aware_calibration_error '
        'reliability_bins'
    ),
    'mmrank.functional.calibration.monotone_map': 'interpolated_map keep_order platt_map',
    'mmrank.functional.metrics.average_precision': 'auroc average_precision count_at_or_above',
    'mmrank.functional.metrics.best_positive_rank': 'best_positive_rank',
    'mmrank.functional.metrics.k_nearest_votes': 'k_nearest_votes',
    'mmrank.functional.metrics.retrieval.curves': 'RetrievalCurves recall_curve retrieval_curves',
    'mmrank.functional.metrics.retrieval.figures': 'RetrievalFigures',
    'mmrank.functional.metrics.retrieval.metrics': 'retrieval_metrics',
    'mmrank.functional.metrics.retrieval.nearest': 'nearest_in_gallery',
    'mmrank.functional.metrics.retrieval.stored': 'StoredEmbeddings',
    'mmrank.functional.metrics.top_k_inner_product': 'top_k_inner_product',
    'mmrank.losses.contrastive.cyclic_consistency': 'cyclic_consistency',
    'mmrank.losses.contrastive.decorrelation': (
        'VICRegTerms cross_correlation_terms off_diagonal_square_sum vicreg_terms'
    ),
    'mmrank.losses.contrastive.global_contrastive': 'global_contrastive_loss temperature_gradient',
    'mmrank.losses.contrastive.grad_cache': 'grad_cache',
    'mmrank.losses.contrastive.info_nce': 'dual_temperature_losses info_nce_loss info_nce_losses',
    'mmrank.losses.contrastive.negative_terms': (
        'NegativeTerms negative_terms two_modality_terms two_view_terms'
    ),
    'mmrank.losses.contrastive.ring': 'KeyRing',
    'mmrank.losses.contrastive.sigmoid_contrastive': 'sigmoid_losses',
    'mmrank.losses.contrastive.spectral_contrastive': 'capped_rows spectral_losses',
    'mmrank.losses.contrastive.unit_rows': 'unit_rows',
    'mmrank.losses.long_tail.class_balance': (
        'effective_number_weights ldam_margins ldam_sigmoid ldam_softmax'
    ),
    'mmrank.losses.pairs.pair_sums': 'OneSidedHuber Sigmoid Surrogate pairwise_surrogate_sum',
    'mmrank.losses.pairs.surrogates': (
        'Logistic OneSidedSigmoid SURROGATES SquaredHinge build_surrogate one_sided_huber '
        'one_sided_sigmoid pairwise_surrogate_mean'
    ),
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
    'mmrank.losses.ranking.stable_ap': (
        'mean_one practical_weight smoothed_rank stable_ap_loss stable_ap_outer theorem1_weight'
    ),
    'mmrank.losses.two_tower.coefficients': 'IN_BATCH_MODES',
    'mmrank.losses.two_tower.cross_sum': 'weighted_cross_sum',
    'mmrank.losses.two_tower.embedding_loss': 'in_batch_embedding_loss',
    'mmrank.losses.two_tower.loss': 'in_batch_loss',
    'mmrank.losses.two_tower.pointwise': (
        'LogisticPointwise POINTWISE Pointwise SquarePointwise build_pointwise'
    ),
    'mmrank.losses.two_tower.softmax': 'in_batch_softmax_losses',
    'mmrank.state.samples.steps': 'moving_log_mean moving_ranks temperature_step',
    'mmrank.state.score_interpolation': 'interpolate_scores',
    'mmrank.losses.score_lists': 'like_scores split_lists',
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
