"""The Triton kernels of the pair sum: checks, counts and launch sizes."""
