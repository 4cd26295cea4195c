"""State whose rows are spread over the processes."""
