"""Ranking losses."""
