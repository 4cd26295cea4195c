"""Retrievers of mmpretrain's kind."""

from .embedding_retriever import EmbeddingRetriever

__all__ = ['EmbeddingRetriever']
