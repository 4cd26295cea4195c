# The public names: what type checkers and editors read, and what is imported when first used.
from mmrank.calibration.calibration_error import (
    expected_calibration_error as expected_calibration_error,
)
from mmrank.calibration.calibration_error import reliability_bins as reliability_bins
from mmrank.calibration.monotone_map import keep_order as keep_order
from mmrank.distributed import all_reduce_sum as all_reduce_sum
from mmrank.losses.auc.auc import auc_loss as auc_loss
from mmrank.losses.contrastive.grad_cache import grad_cache as grad_cache
from mmrank.losses.contrastive.sogclr import global_contrastive_loss as global_contrastive_loss
from mmrank.losses.pairs import OneSidedHuber as OneSidedHuber
from mmrank.losses.pairs_smooth import Sigmoid as Sigmoid
from mmrank.losses.pairs_smooth import SquaredHinge as SquaredHinge
from mmrank.losses.pairs_smooth import Surrogate as Surrogate
from mmrank.losses.pairs_smooth import pairwise_surrogate_sum as pairwise_surrogate_sum
from mmrank.losses.pairs_smooth import sum_over_negatives as sum_over_negatives
from mmrank.losses.pairs_smooth import sum_over_positives as sum_over_positives
from mmrank.losses.plain_lists import split_lists as split_lists
from mmrank.losses.ranking.alrp import alrp_loss as alrp_loss
from mmrank.losses.ranking.ap_loss import ap_loss as ap_loss
from mmrank.losses.ranking.blackbox_ap import blackbox_ap_loss as blackbox_ap_loss
from mmrank.losses.ranking.dr_loss import dr_loss as dr_loss
from mmrank.losses.ranking.listwise_ap import listwise_ap_loss as listwise_ap_loss
from mmrank.losses.ranking.rank_sort import rank_sort_loss as rank_sort_loss
from mmrank.losses.ranking.smooth_ap import smooth_ap_loss as smooth_ap_loss
from mmrank.losses.ranking.soprc import soprc_loss as soprc_loss
from mmrank.losses.ranking.stable_ap import stable_ap_loss as stable_ap_loss
from mmrank.losses.retrieval.hierarchical import hap_loss as hap_loss
from mmrank.losses.retrieval.hierarchical import ndcg_loss as ndcg_loss
from mmrank.losses.retrieval.recall_at_k import recall_at_k_loss as recall_at_k_loss
from mmrank.losses.two_tower.pointwise import Pointwise as Pointwise
from mmrank.metrics.average_precision import auroc as auroc
from mmrank.metrics.average_precision import average_precision as average_precision
from mmrank.metrics.average_precision import graded_average_precision as graded_average_precision
from mmrank.metrics.average_precision import ndcg as ndcg
from mmrank.metrics.average_precision import partial_auroc as partial_auroc
from mmrank.metrics.k_nearest_votes import k_nearest_votes as k_nearest_votes
from mmrank.metrics.retrieval.levels import level_metrics as level_metrics
from mmrank.metrics.retrieval.metrics import nearest_in_gallery as nearest_in_gallery
from mmrank.metrics.retrieval.metrics import recall_curve as recall_curve
from mmrank.metrics.retrieval.metrics import retrieval_curves as retrieval_curves
from mmrank.metrics.retrieval.metrics import retrieval_metrics as retrieval_metrics
from mmrank.state.score_vector import interpolate_scores as interpolate_scores
from mmrank.tensors import unit_rows as unit_rows

__all__: list[str]
