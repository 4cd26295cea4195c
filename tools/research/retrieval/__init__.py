"""Plans and a harness of image search on stored features."""
