"""Shared by several studies."""
