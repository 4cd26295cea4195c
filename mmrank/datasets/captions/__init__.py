"""Images with captions: readers of files, and data sets."""
