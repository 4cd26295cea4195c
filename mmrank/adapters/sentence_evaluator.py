"""Exact mean average precision for the trainer of sentence-transformers."""

from collections.abc import Collection, Mapping

import torch

from mmrank.errors import UserError
from mmrank.functional import average_precision
from mmrank.required_package import required_package

with required_package(
    'sentence_transformers', 'MeanAveragePrecisionEvaluator', "pip install 'mmrank[adapters]'"
):
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator


class MeanAveragePrecisionEvaluator(SentenceEvaluator):
    """Mean over the queries of the exact average precision over the whole corpus.

    ``InformationRetrievalEvaluator`` cuts every list at k (``map@100``), which leaves out relevant
    documents beyond. Here every document has its rank, and a tie counts as ranked above, as in
    :func:`mmrank.functional.average_precision`. Choose the best checkpoint by it with
    ``load_best_model_at_end=True, metric_for_best_model='eval_map'``, or ``'eval_NAME_map'``.

    Args:
        queries: Queries by id, as for ``InformationRetrievalEvaluator``; those without a relevant
            document are left out.
        corpus: Documents by id.
        relevant_docs: Ids of the relevant documents of each query.
        name: Put before the name of the metric.
        batch_size: Texts to embed at a time.

    Raises:
        UserError: If no query has a relevant document, or one is not in the corpus.
    """

    def __init__(
        self,
        queries: Mapping,
        corpus: Mapping,
        relevant_docs: Mapping[object, Collection],
        name: str = '',
        batch_size: int = 32,
    ) -> None:
        super().__init__()
        place = {key: i for i, key in enumerate(corpus)}
        relevant = {key: relevant_docs[key] for key in queries if relevant_docs.get(key)}
        unknown = sorted({str(d) for docs in relevant.values() for d in docs if d not in place})
        if unknown or not relevant:
            found = f'some that corpus lacks: {", ".join(unknown[:5])}' if unknown else 'none'
            raise UserError(
                f'relevant_docs must name documents of corpus for a query, got {found}. Fix: take '
                "ids of one type for all three, such as str: relevant_docs={'q1': {'d7'}}"
            )
        self.queries, self.corpus = [queries[key] for key in relevant], [*corpus.values()]
        self.relevant = [torch.tensor([place[d] for d in docs]) for docs in relevant.values()]
        self.name, self.batch_size, self.primary_metric = name, batch_size, 'map'

    def __call__(
        self, model, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return ``{'map': value}``, in [0, 1]; ``output_path`` is not used."""
        options = dict(batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False)
        queries = model.encode_query(self.queries, **options)
        documents = model.encode_document(self.corpus, **options)
        found = []
        for query, relevant in zip(queries, self.relevant):
            scores = model.similarity(query[None], documents)[0]
            is_relevant = torch.zeros_like(scores, dtype=torch.bool)
            is_relevant[relevant.to(scores.device)] = True
            found.append(average_precision(scores, is_relevant))
        value = torch.stack(found).double().mean().item()
        metrics = self.prefix_name_to_metrics({'map': value}, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics
