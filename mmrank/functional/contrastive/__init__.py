"""Contrastive losses and decorrelation."""
