"""Self-supervised algorithms of mmpretrain's kind."""
