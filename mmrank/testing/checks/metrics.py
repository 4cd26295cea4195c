"""The check of a loss against the metric that it stands for, by scikit-learn."""

import torch

from mmrank.testing.check import check, require_same
from mmrank.testing.subject import Subject

#: The functions of sklearn.metrics by the names of metrics.
FUNCTIONS = {
    'average_precision': 'average_precision_score',
    'auroc': 'roc_auc_score',
    'ndcg': 'ndcg_score',
}


@check(excuse=lambda subject: '' if subject.limit else 'it names no metric')
def _metric(subject: Subject) -> None:
    """In the limit of its settings the loss is one minus its metric.

    A smooth average precision with a narrow sigmoid is the average precision of scikit-learn; what
    it converges to instead is another metric.
    """
    from sklearn import metrics

    function = getattr(metrics, FUNCTIONS[subject.metric])
    for seed in range(4):
        batch = subject.batch(seed=seed)
        found = batch.of(subject.limit()).double()
        # One list, or rows of lists, over which the mean is.
        scores = batch.leaves[0].reshape(-1, batch.leaves[0].size(-1)).numpy()
        labels = batch.fixed[0].reshape(scores.shape).numpy()
        if subject.metric == 'ndcg':
            # Its gain is the label itself, in sklearn; here 2^label - 1 as in most losses.
            values = [function(2.0**labels - 1, scores)]
        else:
            values = [function(y > 0, x) for x, y in zip(scores, labels) if (y > 0).any()]
        expected = torch.tensor(1 - sum(values) / len(values)).double()
        what = f'the loss compared with 1 - {subject.metric}'
        require_same(found, expected, what, 1e-4, 1e-4)
