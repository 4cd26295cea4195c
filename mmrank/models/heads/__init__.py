"""Heads of mmpretrain's kind."""
