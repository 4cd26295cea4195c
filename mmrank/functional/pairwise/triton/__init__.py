"""Interval sums as Triton kernels. Importing this package needs no triton."""
