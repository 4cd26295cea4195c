"""The checks, by what they look at."""
