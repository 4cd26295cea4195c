"""Checkpoints that are whole and runs that resume exactly."""
