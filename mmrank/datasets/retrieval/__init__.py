"""Image retrieval data sets: every image has one class."""
