"""Registers the metrics; mmdet is not imported."""

import mmrank.evaluation.average_precision_metric
import mmrank.evaluation.frozen_feature_metrics
import mmrank.evaluation.image_text_retrieval_metric
import mmrank.evaluation.retrieval_metric
import mmrank.evaluation.top_k_metric  # noqa: F401  they register
from mmrank.imports import register_optional
from mmrank.registry import METRICS

register_optional(METRICS, 'mmdet', {'CocoMetric': 'mmrank.evaluation.coco_metric.CocoMetric'})
