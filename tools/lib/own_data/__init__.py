"""A config for a data set of one's own, for tools/new_config.py."""
