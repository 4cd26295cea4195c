# The public names: what type checkers and editors read, and what is imported when first used.
from mmrank.evaluation.average_precision_metric import (
    AveragePrecisionMetric as AveragePrecisionMetric,
)
from mmrank.evaluation.coco_metric import CocoMetric as CocoMetric
from mmrank.evaluation.frozen_feature_metrics import KNNMetric as KNNMetric
from mmrank.evaluation.frozen_feature_metrics import LinearProbeMetric as LinearProbeMetric
from mmrank.evaluation.image_text_retrieval_metric import (
    ImageTextRetrievalMetric as ImageTextRetrievalMetric,
)
from mmrank.evaluation.retrieval_metric import RetrievalMetric as RetrievalMetric
from mmrank.evaluation.top_k_metric import TopKMetric as TopKMetric
