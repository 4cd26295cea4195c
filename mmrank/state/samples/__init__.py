"""State of each sample of the training set."""
