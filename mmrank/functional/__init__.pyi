# The public names: what type checkers and editors read, and what is imported when first used.
from mmrank.calibration.calibration_error import ReliabilityBins as ReliabilityBins
from mmrank.calibration.calibration_error import (
    expected_calibration_error as expected_calibration_error,
)
from mmrank.calibration.calibration_error import (
    localisation_aware_calibration_error as localisation_aware_calibration_error,
)
from mmrank.calibration.calibration_error import reliability_bins as reliability_bins
from mmrank.calibration.monotone_map import interpolated_map as interpolated_map
from mmrank.calibration.monotone_map import keep_order as keep_order
from mmrank.calibration.monotone_map import platt_map as platt_map
from mmrank.distributed import all_reduce_sum as all_reduce_sum
from mmrank.functional.metrics.average_precision import auroc as auroc
from mmrank.functional.metrics.average_precision import average_precision as average_precision
from mmrank.functional.metrics.average_precision import count_at_or_above as count_at_or_above
from mmrank.functional.metrics.average_precision import (
    graded_average_precision as graded_average_precision,
)
from mmrank.functional.metrics.average_precision import ndcg as ndcg
from mmrank.functional.metrics.average_precision import partial_auroc as partial_auroc
from mmrank.functional.metrics.best_positive_rank import best_positive_rank as best_positive_rank
from mmrank.functional.metrics.k_nearest_votes import k_nearest_votes as k_nearest_votes
from mmrank.functional.metrics.retrieval.input import StoredEmbeddings as StoredEmbeddings
from mmrank.functional.metrics.retrieval.levels import LevelFigures as LevelFigures
from mmrank.functional.metrics.retrieval.levels import level_metrics as level_metrics
from mmrank.functional.metrics.retrieval.metrics import RetrievalCurves as RetrievalCurves
from mmrank.functional.metrics.retrieval.metrics import RetrievalFigures as RetrievalFigures
from mmrank.functional.metrics.retrieval.metrics import nearest_in_gallery as nearest_in_gallery
from mmrank.functional.metrics.retrieval.metrics import recall_curve as recall_curve
from mmrank.functional.metrics.retrieval.metrics import retrieval_curves as retrieval_curves
from mmrank.functional.metrics.retrieval.metrics import retrieval_metrics as retrieval_metrics
from mmrank.functional.metrics.top_k_inner_product import top_k_inner_product as top_k_inner_product
from mmrank.losses.auc.auc import auc_loss as auc_loss
from mmrank.losses.auc.auc import mauc_loss as mauc_loss
from mmrank.losses.auc.soap import soap_loss as soap_loss
from mmrank.losses.contrastive.cyclip import cyclic_consistency as cyclic_consistency
from mmrank.losses.contrastive.decorrelation import VICRegTerms as VICRegTerms
from mmrank.losses.contrastive.decorrelation import (
    cross_correlation_terms as cross_correlation_terms,
)
from mmrank.losses.contrastive.decorrelation import (
    off_diagonal_square_sum as off_diagonal_square_sum,
)
from mmrank.losses.contrastive.decorrelation import vicreg_terms as vicreg_terms
from mmrank.losses.contrastive.grad_cache import grad_cache as grad_cache
from mmrank.losses.contrastive.info_nce import info_nce_loss as info_nce_loss
from mmrank.losses.contrastive.info_nce import info_nce_losses as info_nce_losses
from mmrank.losses.contrastive.others import capped_rows as capped_rows
from mmrank.losses.contrastive.others import dual_temperature_losses as dual_temperature_losses
from mmrank.losses.contrastive.others import spectral_losses as spectral_losses
from mmrank.losses.contrastive.ring import KeyRing as KeyRing
from mmrank.losses.contrastive.siglip import sigmoid_losses as sigmoid_losses
from mmrank.losses.contrastive.sogclr import global_contrastive_loss as global_contrastive_loss
from mmrank.losses.contrastive.sogclr import temperature_gradient as temperature_gradient
from mmrank.losses.contrastive.terms import NegativeTerms as NegativeTerms
from mmrank.losses.contrastive.terms import negative_terms as negative_terms
from mmrank.losses.contrastive.terms import two_modality_terms as two_modality_terms
from mmrank.losses.contrastive.terms import two_view_terms as two_view_terms
from mmrank.losses.pairs.pair_sums import pairwise_surrogate_mean as pairwise_surrogate_mean
from mmrank.losses.pairs.pair_sums import pairwise_surrogate_sum as pairwise_surrogate_sum
from mmrank.losses.pairs.rank_weights import mean_one as mean_one
from mmrank.losses.pairs.rank_weights import practical_weight as practical_weight
from mmrank.losses.pairs.rank_weights import smoothed_rank as smoothed_rank
from mmrank.losses.pairs.rank_weights import theorem1_weight as theorem1_weight
from mmrank.losses.pairs.surrogates import SURROGATES as SURROGATES
from mmrank.losses.pairs.surrogates import Logistic as Logistic
from mmrank.losses.pairs.surrogates import OneSidedHuber as OneSidedHuber
from mmrank.losses.pairs.surrogates import OneSidedSigmoid as OneSidedSigmoid
from mmrank.losses.pairs.surrogates import Sigmoid as Sigmoid
from mmrank.losses.pairs.surrogates import SquaredHinge as SquaredHinge
from mmrank.losses.pairs.surrogates import Surrogate as Surrogate
from mmrank.losses.pairs.surrogates import build_surrogate as build_surrogate
from mmrank.losses.pairs.surrogates import one_sided_huber as one_sided_huber
from mmrank.losses.pairs.surrogates import one_sided_sigmoid as one_sided_sigmoid
from mmrank.losses.pointwise.class_balanced_ce import (
    effective_number_weights as effective_number_weights,
)
from mmrank.losses.pointwise.ldam import ldam_margins as ldam_margins
from mmrank.losses.pointwise.ldam import ldam_sigmoid as ldam_sigmoid
from mmrank.losses.pointwise.ldam import ldam_softmax as ldam_softmax
from mmrank.losses.pointwise.logit_adjusted_ce import log_shares as log_shares
from mmrank.losses.ranking.alrp import ALRP as ALRP
from mmrank.losses.ranking.alrp import alrp_loss as alrp_loss
from mmrank.losses.ranking.ap_loss import ap_loss as ap_loss
from mmrank.losses.ranking.ap_loss import piecewise_linear_step as piecewise_linear_step
from mmrank.losses.ranking.blackbox_ap import blackbox_ap_loss as blackbox_ap_loss
from mmrank.losses.ranking.dr_loss import dr_loss as dr_loss
from mmrank.losses.ranking.dr_loss import softmax_mean as softmax_mean
from mmrank.losses.ranking.listwise_ap import listwise_ap_loss as listwise_ap_loss
from mmrank.losses.ranking.rank_sort import RankSort as RankSort
from mmrank.losses.ranking.rank_sort import rank_sort_loss as rank_sort_loss
from mmrank.losses.ranking.smooth_ap import smooth_ap_loss as smooth_ap_loss
from mmrank.losses.ranking.soprc import semi_variance as semi_variance
from mmrank.losses.ranking.soprc import soprc_loss as soprc_loss
from mmrank.losses.ranking.stable_ap import stable_ap_loss as stable_ap_loss
from mmrank.losses.ranking.stable_ap import stable_ap_outer as stable_ap_outer
from mmrank.losses.retrieval.hierarchical import hap_loss as hap_loss
from mmrank.losses.retrieval.hierarchical import ndcg_loss as ndcg_loss
from mmrank.losses.retrieval.recall_at_k import recall_at_k_loss as recall_at_k_loss
from mmrank.losses.split_lists import like_scores as like_scores
from mmrank.losses.split_lists import split_lists as split_lists
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES as IN_BATCH_MODES
from mmrank.losses.two_tower.in_batch import in_batch_embedding_loss as in_batch_embedding_loss
from mmrank.losses.two_tower.in_batch import in_batch_loss as in_batch_loss
from mmrank.losses.two_tower.in_batch_softmax import (
    in_batch_softmax_losses as in_batch_softmax_losses,
)
from mmrank.losses.two_tower.pointwise import POINTWISE as POINTWISE
from mmrank.losses.two_tower.pointwise import LogisticPointwise as LogisticPointwise
from mmrank.losses.two_tower.pointwise import Pointwise as Pointwise
from mmrank.losses.two_tower.pointwise import SquarePointwise as SquarePointwise
from mmrank.losses.two_tower.pointwise import build_pointwise as build_pointwise
from mmrank.losses.two_tower.sums import weighted_cross_sum as weighted_cross_sum
from mmrank.losses.unit_rows import unit_rows as unit_rows
from mmrank.state.kept_positives import moving_ranks as moving_ranks
from mmrank.state.sample_averages import TemperatureStep as TemperatureStep
from mmrank.state.sample_averages import moving_log_mean as moving_log_mean
from mmrank.state.score_vector import interpolate_scores as interpolate_scores

__all__: list[str]
