"""The check of a loss against the metric that it stands for, by scikit-learn."""

import torch
from torch import Tensor

from mmrank.testing.check import check, require_same
from mmrank.testing.subject import Subject

#: The functions of sklearn.metrics by the names of metrics.
FUNCTIONS = {
    'average_precision': 'average_precision_score',
    'auroc': 'roc_auc_score',
    'ndcg': 'ndcg_score',
}


def _metric_of(name: str, scores: Tensor, labels: Tensor) -> float:
    """Mean of a metric over lists, which are rows of (lists, entries), or over one list."""
    from sklearn import metrics

    function = getattr(metrics, FUNCTIONS[name])
    scores = scores.reshape(-1, scores.size(-1)).numpy()
    labels = labels.reshape(scores.shape).numpy()
    if name == 'ndcg':
        # Its gain is the label itself, in sklearn; here 2^label - 1 as in most losses.
        return float(function(2.0**labels - 1, scores))
    values = [function(y > 0, x) for x, y in zip(scores, labels) if (y > 0).any()]
    return float(sum(values) / len(values))


@check(excuse=lambda subject: '' if subject.limit else 'it names no metric')
def _metric(subject: Subject) -> None:
    """In the limit of its settings the loss is one minus its metric.

    A smooth average precision with a narrow sigmoid is the average precision of scikit-learn; what
    it converges to instead is another metric.
    """
    for seed in range(4):
        batch = subject.batch(seed=seed)
        found = batch.of(subject.limit()).double()
        expected = 1 - _metric_of(subject.metric, batch.leaves[0], batch.fixed[0])
        require_same(
            found,
            torch.tensor(expected).double(),
            f'the loss compared with 1 - {subject.metric}',
            1e-4,
            1e-4,
        )
