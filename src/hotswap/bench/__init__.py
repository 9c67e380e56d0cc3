"""A benchmark of training without tuning: the same workloads for all methods, at the same cost."""
