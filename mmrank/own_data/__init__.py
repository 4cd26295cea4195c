"""A config for a data set of one's own, for mmrank new-config."""
