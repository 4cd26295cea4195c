"""Long-tailed data sets: exponential subsets, binary splits, multi-label."""
