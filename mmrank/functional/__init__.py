"""Pure functions: surrogates, ranks, losses and metrics. Needs torch alone."""

from importlib import import_module

from .calibration.calibration_error import (
    ReliabilityBins,
    expected_calibration_error,
    localisation_aware_calibration_error,
    reliability_bins,
)
from .calibration.monotone_map import interpolated_map, keep_order, platt_map
from .metrics.average_precision import auroc, average_precision, count_at_or_above
from .metrics.best_positive_rank import best_positive_rank
from .metrics.k_nearest_votes import k_nearest_votes
from .metrics.retrieval.curves import RetrievalCurves, recall_curve, retrieval_curves
from .metrics.retrieval.figures import RetrievalFigures
from .metrics.retrieval.metrics import retrieval_metrics
from .metrics.retrieval.nearest import nearest_in_gallery
from .metrics.retrieval.stored import StoredEmbeddings
from .metrics.top_k_inner_product import top_k_inner_product
from .pairwise.pairwise_surrogate import pairwise_surrogate_mean, pairwise_surrogate_sum
from .pairwise.surrogates import (
    SURROGATES,
    Logistic,
    OneSidedHuber,
    OneSidedSigmoid,
    Sigmoid,
    SquaredHinge,
    Surrogate,
    build_surrogate,
    one_sided_huber,
    one_sided_huber_derivative,
    one_sided_sigmoid,
)
from .ranking.auc import auc_lists, auc_loss
from .ranking.blackbox_ap import blackbox_ap_lists, blackbox_ap_loss
from .ranking.dr_loss import distributional_ranking, dr_loss, dr_loss_lists, softmax_mean
from .ranking.error_driven.alrp_loss import ALRP, alrp_loss, alrp_loss_lists, error_driven_alrp
from .ranking.error_driven.ap_loss import ap_loss, ap_loss_lists, error_driven_ap
from .ranking.error_driven.rank_sort import (
    RankSort,
    error_driven_rank_sort,
    rank_sort_loss,
    rank_sort_loss_lists,
)
from .ranking.error_driven.update import piecewise_linear_step
from .ranking.lists import (
    count_negatives,
    gather_positives,
    positive_index,
    ranking_function,
    score_lists,
)
from .ranking.listwise_ap import listwise_ap_lists, listwise_ap_loss
from .ranking.mauc import MAUCTerms, mauc_terms
from .ranking.rank_weights import (
    mean_one,
    normalised_positive_rank,
    practical_weight,
    smoothed_rank,
    theorem1_weight,
)
from .ranking.semi_variance import batch_semi_variance, semi_variance, upper_semi_variance
from .ranking.smooth_ap import smooth_ap_lists, smooth_ap_loss
from .ranking.soap import soap_lists, soap_loss, soap_of_ranks, surrogate_ranks
from .ranking.soprc import SOPRCTerms, soprc_lists, soprc_loss, soprc_terms
from .ranking.stable_ap import (
    StableAPTerms,
    WeightedRisk,
    rank_weighted_risk,
    stable_ap_lists,
    stable_ap_loss,
    stable_ap_of_risk,
    stable_ap_outer,
    stable_ap_terms,
)

__all__ = [
    'ALRP',
    'IN_BATCH_MODES',
    'POINTWISE',
    'SURROGATES',
    'KeyRing',
    'Logistic',
    'LogisticPointwise',
    'MAUCTerms',
    'NegativeTerms',
    'OneSidedHuber',
    'OneSidedSigmoid',
    'Pointwise',
    'RankSort',
    'ReliabilityBins',
    'RetrievalCurves',
    'RetrievalFigures',
    'SOPRCTerms',
    'Sigmoid',
    'SquarePointwise',
    'SquaredHinge',
    'StableAPTerms',
    'StoredEmbeddings',
    'Surrogate',
    'TemperatureStep',
    'VICRegTerms',
    'WeightedRisk',
    'all_reduce_sum',
    'alrp_loss',
    'alrp_loss_lists',
    'ap_loss',
    'ap_loss_lists',
    'auc_lists',
    'auc_loss',
    'auroc',
    'average_precision',
    'batch_semi_variance',
    'best_positive_rank',
    'blackbox_ap_lists',
    'blackbox_ap_loss',
    'build_pointwise',
    'build_surrogate',
    'capped_rows',
    'count_at_or_above',
    'count_negatives',
    'cross_correlation_terms',
    'cyclic_consistency',
    'distributional_ranking',
    'dr_loss',
    'dr_loss_lists',
    'dual_temperature_losses',
    'effective_number_weights',
    'error_driven_alrp',
    'error_driven_ap',
    'error_driven_rank_sort',
    'expected_calibration_error',
    'gather_positives',
    'global_contrastive_loss',
    'grad_cache',
    'in_batch_embedding_loss',
    'in_batch_loss',
    'in_batch_softmax_losses',
    'info_nce_loss',
    'info_nce_losses',
    'interpolate_scores',
    'interpolated_map',
    'k_nearest_votes',
    'keep_order',
    'ldam_margins',
    'ldam_sigmoid',
    'ldam_softmax',
    'listwise_ap_lists',
    'listwise_ap_loss',
    'localisation_aware_calibration_error',
    'mauc_terms',
    'mean_one',
    'moving_log_mean',
    'moving_ranks',
    'nearest_in_gallery',
    'negative_terms',
    'normalised_positive_rank',
    'off_diagonal_square_sum',
    'one_sided_huber',
    'one_sided_huber_derivative',
    'one_sided_sigmoid',
    'pairwise_surrogate_mean',
    'pairwise_surrogate_sum',
    'piecewise_linear_step',
    'platt_map',
    'positive_index',
    'practical_weight',
    'rank_sort_loss',
    'rank_sort_loss_lists',
    'rank_weighted_risk',
    'ranking_function',
    'recall_curve',
    'reliability_bins',
    'retrieval_curves',
    'retrieval_metrics',
    'score_lists',
    'semi_variance',
    'sigmoid_losses',
    'smooth_ap_lists',
    'smooth_ap_loss',
    'smoothed_rank',
    'soap_lists',
    'soap_loss',
    'soap_of_ranks',
    'softmax_mean',
    'soprc_lists',
    'soprc_loss',
    'soprc_terms',
    'spectral_losses',
    'stable_ap_lists',
    'stable_ap_loss',
    'stable_ap_of_risk',
    'stable_ap_outer',
    'stable_ap_terms',
    'surrogate_ranks',
    'temperature_gradient',
    'theorem1_weight',
    'top_k_inner_product',
    'two_modality_terms',
    'two_view_terms',
    'unit_rows',
    'upper_semi_variance',
    'vicreg_terms',
    'weighted_cross_sum',
]

# Looked up when used: the modules of mmrank.losses import submodules of this package.
_LATE = {
    'mmrank.distributed': ('all_reduce_sum',),
    'mmrank.losses.contrastive.base': ('unit_rows',),
    'mmrank.losses.contrastive.cyclip': ('cyclic_consistency',),
    'mmrank.losses.contrastive.decorrelation': (
        'VICRegTerms',
        'cross_correlation_terms',
        'off_diagonal_square_sum',
        'vicreg_terms',
    ),
    'mmrank.losses.contrastive.grad_cache': ('grad_cache',),
    'mmrank.losses.contrastive.info_nce': ('info_nce_loss', 'info_nce_losses'),
    'mmrank.losses.contrastive.others': (
        'capped_rows',
        'dual_temperature_losses',
        'spectral_losses',
    ),
    'mmrank.losses.contrastive.ring': ('KeyRing',),
    'mmrank.losses.contrastive.siglip': ('sigmoid_losses',),
    'mmrank.losses.contrastive.sogclr': ('global_contrastive_loss', 'temperature_gradient'),
    'mmrank.losses.contrastive.terms': (
        'NegativeTerms',
        'negative_terms',
        'two_modality_terms',
        'two_view_terms',
    ),
    'mmrank.losses.long_tail.class_balance': (
        'effective_number_weights',
        'ldam_margins',
        'ldam_sigmoid',
        'ldam_softmax',
    ),
    'mmrank.losses.two_tower.coefficients': ('IN_BATCH_MODES',),
    'mmrank.losses.two_tower.cross_sum': ('weighted_cross_sum',),
    'mmrank.losses.two_tower.embedding_loss': ('in_batch_embedding_loss',),
    'mmrank.losses.two_tower.loss': ('in_batch_loss',),
    'mmrank.losses.two_tower.pointwise': (
        'LogisticPointwise',
        'POINTWISE',
        'Pointwise',
        'SquarePointwise',
        'build_pointwise',
    ),
    'mmrank.losses.two_tower.softmax': ('in_batch_softmax_losses',),
    'mmrank.state.sample_averages': ('TemperatureStep', 'moving_log_mean'),
    'mmrank.state.sample_ranks': ('moving_ranks',),
    'mmrank.state.score_vector': ('interpolate_scores',),
}


def __getattr__(name: str):
    for path, names in _LATE.items():
        if name in names:
            return getattr(import_module(path), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
