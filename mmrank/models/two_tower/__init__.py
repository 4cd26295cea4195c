"""Two-tower models: similarity of a left and a right entity."""
