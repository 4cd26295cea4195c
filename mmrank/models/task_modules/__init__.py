"""Assigners. mmdet is imported only when one is built."""

from .atss_assigner import build_anchor_atss_assigner, count_level_priors

__all__ = ['build_anchor_atss_assigner', 'count_level_priors']
