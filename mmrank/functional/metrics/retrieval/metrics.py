"""Exact figures of retrieval by embeddings, without the matrix of all scores.

One panel of scores, a few queries by the whole gallery, is alive at a time.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from .figures import RetrievalFigures, empty_figures, figures_of_ranks, first_ranks
from .ranking import count_positives
from .stored import StoredEmbeddings
from .streaming import prepare_sets, rank_sets


@torch.no_grad()
def retrieval_metrics(
    queries: Tensor | StoredEmbeddings,
    query_labels: Tensor,
    gallery: Tensor | StoredEmbeddings | None = None,
    gallery_labels: Tensor | None = None,
    *,
    similarity: str = 'cosine',
    recall_only: bool = False,
    memory_limit: int = 2**30,
    scratch: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    group: 'dist.ProcessGroup | None' = None,
) -> RetrievalFigures:
    """AP, R-Precision, MAP@R and the best positive's rank of each query.

    A query's positives are the gallery samples of its class. Without a
    gallery every query searches the other queries, itself left out.

    With ``rank_i`` and ``rank+_i`` the numbers of gallery and of positive scores >= that of
    positive i, ``AP = mean_i rank+_i / rank_i``: a tie counts as ranked above, as in
    ``average_precision`` and scikit-learn. The figures with a cut-off place the negatives first
    among ties, the least favourable order: with ``p_i`` the place of the i-th best positive and R
    positives, R-Precision is ``#{p_i <= R} / R``, MAP@R (Musgrave et al., A Metric Learning Reality
    Check, ECCV 2020, eq. 3) is
    ``sum_{p_i <= R} (i / p_i) / R`` and a query counts for Recall@K when
    ``p_1 <= K``. No figure depends on the order of the gallery.

    Scores are float64 for float64 embeddings and float32 otherwise, in the precision of
    ``torch.mm`` (TF32 if you switched it on).

    Embeddings may be in files: ``StoredEmbeddings`` for queries and gallery give the same figures
    on the CPU, with no more than ``memory_limit`` bytes of them, and of what follows from them, in
    memory, beside about 100 bytes for each row. A score is then an entry of a matrix product of
    another shape, which may differ in its last bit; so may a figure where two scores are that near.

    Args:
        queries: (Q, D) embeddings of any float dtype.
        query_labels: (Q,) integers of any dtype, one class per sample.
        gallery: (N, D) float embeddings on the queries' device; None for
            the queries themselves.
        gallery_labels: (N,) integers.
        similarity: ``'cosine'`` (a row of zeros scores 0) or ``'dot'``.
        recall_only: Compute the best positive's rank alone, for Recall@K:
            one comparison of a query's scores, not one for each positive.
            The other figures are NaN.
        memory_limit: Bytes of temporary tensors, beside normalised copies of queries and gallery
            and a few indices for each row of them. With stored embeddings these copies are in
            files.
        scratch: Folder of these files, which are as large as queries and gallery in the scores'
            dtype and have no names; None for that of the embeddings. Of a process group each
            process has its own.
        progress: Called as ``progress(done, total)`` after each panel, with numbers of queries, of
            this process alone with ``group``.
        group: Processes that share the work. All pass the same input and
            get the same figures, which are those of a single process bit for bit where the machines
            are equal. None: this process alone.

    Returns:
        Figures per query; ``summary()`` averages them.

    Raises:
        ValueError: If a shape does not fit, an embedding is not finite, dot products overflow or
            ``memory_limit`` is less than one query needs.
        TypeError: If embeddings are not floats or labels not integers.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.1], [0.0, 1.0]])
        >>> figures = retrieval_metrics(x, torch.tensor([0, 1, 0, 1]))
        >>> figures.average_precision
        tensor([1.0000, 0.3333, 1.0000, 1.0000], dtype=torch.float64)
        >>> figures.summary(recall_at=[1])['recall@1']
        0.75
    """
    sets = prepare_sets(
        *(queries, query_labels, gallery, gallery_labels), *(similarity, memory_limit, scratch)
    )
    result = empty_figures(count_positives(sets))
    if recall_only:
        nothing = torch.full_like(result.average_precision, float('nan'))
        result = RetrievalFigures(nothing, nothing, nothing, *result[-2:])
    rank_sets(
        sets,
        first_ranks if recall_only else figures_of_ranks,
        [result.first_rank] if recall_only else result[:-1],
        memory_limit=memory_limit,
        best_only=recall_only,
        progress=progress,
        group=group,
    )
    return result.without_unranked()
