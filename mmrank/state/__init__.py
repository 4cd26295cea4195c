"""State that outlives a training step: saved, resumed, synchronised."""
