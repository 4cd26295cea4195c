"""Losses by error-driven update: AP-Loss, aLRP, Rank & Sort."""
