"""Models of images and texts."""
