"""Hooks of scope ``mmrank``."""

from .atomic_checkpoint_hook import AtomicCheckpointHook
from .rng_state_hook import RNGStateHook

__all__ = ['AtomicCheckpointHook', 'RNGStateHook']
