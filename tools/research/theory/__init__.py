"""Numerical checks of the papers' claims; no plotting, no OpenMMLab."""
