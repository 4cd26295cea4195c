"""What losses of other libraries keep to: mmrank.testing on what installs from the index."""
