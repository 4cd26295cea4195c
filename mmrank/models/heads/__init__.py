"""Heads of mmpretrain's kind."""

from .retrieval_head import RetrievalHead

__all__ = ['RetrievalHead']
