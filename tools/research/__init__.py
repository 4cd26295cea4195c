"""Studies and benchmarks. Only ``tools`` imports this package."""
