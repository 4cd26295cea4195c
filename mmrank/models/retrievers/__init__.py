"""Retrievers of mmpretrain's kind."""

from mmrank.optional_class import register_optional
from mmrank.registry import MODELS

register_optional(
    MODELS,
    'mmpretrain',
    {'EmbeddingRetriever': (f'{__name__}.embedding_retriever.EmbeddingRetriever')},
)
