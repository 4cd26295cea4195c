"""Pure functions: surrogates, ranks, losses and metrics. Needs torch alone."""

from .alrp_loss import ALRP, alrp_loss, alrp_loss_lists
from .ap_loss import ap_loss, ap_loss_lists
from .auc import auc_lists, auc_loss
from .auroc import auroc
from .average_precision import average_precision, count_at_or_above
from .best_positive_rank import best_positive_rank
from .blackbox_ap import blackbox_ap_lists, blackbox_ap_loss
from .class_balance import effective_number_weights, ldam_margins
from .contrasted_views import two_modality_terms, two_view_terms
from .cross_correlation import cross_correlation_terms
from .cyclic_consistency import cyclic_consistency
from .dr_loss import dr_loss, dr_loss_lists
from .dual_temperature import dual_temperature_losses
from .global_contrastive import global_contrastive_loss, moving_log_mean
from .in_batch_coefficients import IN_BATCH_MODES
from .in_batch_cross_sum import weighted_cross_sum
from .in_batch_embedding_loss import in_batch_embedding_loss
from .in_batch_loss import in_batch_loss
from .in_batch_pointwise import (
    POINTWISE,
    LogisticPointwise,
    Pointwise,
    SquarePointwise,
    build_pointwise,
)
from .info_nce import info_nce_loss, info_nce_losses
from .isogclr import temperature_gradient, temperature_step
from .k_nearest_votes import k_nearest_votes
from .ldam import ldam_sigmoid, ldam_softmax
from .listwise_ap import listwise_ap_lists, listwise_ap_loss
from .mauc import mauc_terms
from .negative_terms import NegativeTerms, negative_terms
from .off_diagonal import off_diagonal_square_sum
from .pairwise_surrogate import (
    pairwise_surrogate_mean,
    pairwise_surrogate_sum,
)
from .positives import gather_positives, positive_index
from .rank_sort import RankSort, rank_sort_loss, rank_sort_loss_lists
from .rank_weights import (
    mean_one,
    normalised_positive_rank,
    practical_weight,
    smoothed_rank,
    theorem1_weight,
)
from .retrieval_metrics import retrieval_metrics
from .retrieval_metrics_curves import (
    RetrievalCurves,
    recall_curve,
    retrieval_curves,
)
from .retrieval_metrics_figures import RetrievalFigures
from .retrieval_metrics_nearest import nearest_in_gallery
from .score_interpolation import interpolate_score_lists, interpolate_scores
from .semi_variance import semi_variance, upper_semi_variance
from .smooth_ap import smooth_ap_lists, smooth_ap_loss
from .soap import moving_ranks, soap_loss, soap_padded, surrogate_ranks
from .softmax_mean import softmax_mean
from .soprc import SOPRCTerms, soprc_lists, soprc_loss, soprc_terms
from .spectral_contrastive import capped_rows, spectral_losses
from .stable_ap import (
    StableAPTerms,
    WeightedRisk,
    rank_weighted_risk,
    stable_ap_lists,
    stable_ap_loss,
    stable_ap_of_risk,
    stable_ap_outer,
    stable_ap_terms,
)
from .step_sums import piecewise_linear_step
from .surrogates import (
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
from .top_k_inner_product import top_k_inner_product
from .unit_rows import unit_rows
from .vicreg import VICRegTerms, vicreg_terms

__all__ = [
    'ALRP',
    'IN_BATCH_MODES',
    'POINTWISE',
    'SURROGATES',
    'Logistic',
    'LogisticPointwise',
    'NegativeTerms',
    'OneSidedHuber',
    'OneSidedSigmoid',
    'Pointwise',
    'RankSort',
    'RetrievalCurves',
    'RetrievalFigures',
    'SOPRCTerms',
    'Sigmoid',
    'SquarePointwise',
    'SquaredHinge',
    'StableAPTerms',
    'Surrogate',
    'VICRegTerms',
    'WeightedRisk',
    'alrp_loss',
    'alrp_loss_lists',
    'ap_loss',
    'ap_loss_lists',
    'auc_lists',
    'auc_loss',
    'auroc',
    'average_precision',
    'best_positive_rank',
    'blackbox_ap_lists',
    'blackbox_ap_loss',
    'build_pointwise',
    'build_surrogate',
    'capped_rows',
    'count_at_or_above',
    'cross_correlation_terms',
    'cyclic_consistency',
    'dr_loss',
    'dr_loss_lists',
    'dual_temperature_losses',
    'effective_number_weights',
    'gather_positives',
    'global_contrastive_loss',
    'in_batch_embedding_loss',
    'in_batch_loss',
    'info_nce_loss',
    'info_nce_losses',
    'interpolate_score_lists',
    'interpolate_scores',
    'k_nearest_votes',
    'ldam_margins',
    'ldam_sigmoid',
    'ldam_softmax',
    'listwise_ap_lists',
    'listwise_ap_loss',
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
    'positive_index',
    'practical_weight',
    'rank_sort_loss',
    'rank_sort_loss_lists',
    'rank_weighted_risk',
    'recall_curve',
    'retrieval_curves',
    'retrieval_metrics',
    'semi_variance',
    'smooth_ap_lists',
    'smooth_ap_loss',
    'smoothed_rank',
    'soap_loss',
    'soap_padded',
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
    'temperature_step',
    'theorem1_weight',
    'top_k_inner_product',
    'two_modality_terms',
    'two_view_terms',
    'unit_rows',
    'upper_semi_variance',
    'vicreg_terms',
    'weighted_cross_sum',
]
