"""Metrics in words, for pictures, and the best figures of a table."""

import math
from collections.abc import Sequence

_METRICS = {
    'exclusive_mAP': 'mAP of softmax scores',
    'AP_of_all': 'AP of all scores',
    'rare': 'AP of the rare class',
    'pAUC': 'partial AUC',
    'two_way_pAUC': 'two-way partial AUC',
    'others': 'AP of the others',
    'coco/bbox_mAP': 'box mAP',
    'coco/bbox_mAP_50': 'box AP at IoU 0.50',
    'coco/bbox_mAP_75': 'box AP at IoU 0.75',
    'ranking/AP': 'average precision',
    'ranking/mAP': 'mean average precision',
    'ranking/micro_AP': 'AP of all scores',
    'ranking/AUROC': 'area under the ROC curve',
    'retrieval/mAP': 'mean average precision',
    'retrieval/MAP_at_R': 'mean average precision at R',
    'retrieval/R_precision': 'R-precision',
    'retrieval/recall': 'recall',
    'retrieval/H_AP': 'H-AP',
    'retrieval/NDCG': 'NDCG',
    'accuracy/top1': 'top-1 accuracy',
    'accuracy/top5': 'top-5 accuracy',
    'image_text/IR': 'image retrieval, recall',
    'image_text/TR': 'text retrieval, recall',
    'knn/accuracy': 'accuracy of the nearest neighbours',
    'linear/accuracy': 'accuracy of a linear classifier',
    'top_k/precision': 'precision',
    'top_k/recall': 'recall',
    'top_k/ndcg': 'NDCG',
}


def metric_name(metric: str) -> str:
    """Words for the key of a metric, such as ``coco/bbox_mAP_50``; an unknown key as it is."""
    key, at, cut = metric.partition('@')
    words = _METRICS.get(key)
    if words is None:
        return metric
    return f'{words} at {cut}' if at else words


def best_cells(shown: Sequence[str], values: Sequence[float]) -> list[bool]:
    """Whether each value of a column reads like the highest; none if all read the same."""
    known = {v: text for v, text in zip(values, shown) if not math.isnan(v)}
    if len(set(known.values())) < 2:
        return [False] * len(values)
    top = known[max(known)]
    return [text == top for text in shown]
