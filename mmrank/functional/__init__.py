"""Pure functions: surrogates, ranks, losses and metrics. Needs torch alone."""

from .average_precision import average_precision, count_at_or_above
from .pairwise_surrogate import (
    pairwise_surrogate_mean,
    pairwise_surrogate_sum,
)
from .positives import gather_positives, positive_index
from .rank_weights import (
    normalised_positive_rank,
    practical_weight,
    smoothed_rank,
    theorem1_weight,
)
from .stable_ap import (
    StableAPTerms,
    stable_ap_lists,
    stable_ap_loss,
    stable_ap_outer,
    stable_ap_terms,
)
from .surrogates import (
    SURROGATES,
    Logistic,
    OneSidedHuber,
    Sigmoid,
    SquaredHinge,
    Surrogate,
    build_surrogate,
    one_sided_huber,
    one_sided_huber_derivative,
    one_sided_sigmoid,
)

__all__ = [
    'SURROGATES',
    'Logistic',
    'OneSidedHuber',
    'Sigmoid',
    'SquaredHinge',
    'StableAPTerms',
    'Surrogate',
    'average_precision',
    'build_surrogate',
    'count_at_or_above',
    'gather_positives',
    'normalised_positive_rank',
    'one_sided_huber',
    'one_sided_huber_derivative',
    'one_sided_sigmoid',
    'pairwise_surrogate_mean',
    'pairwise_surrogate_sum',
    'positive_index',
    'practical_weight',
    'smoothed_rank',
    'stable_ap_lists',
    'stable_ap_loss',
    'stable_ap_outer',
    'stable_ap_terms',
    'theorem1_weight',
]
