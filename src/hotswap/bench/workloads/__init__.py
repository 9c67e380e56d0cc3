"""The workloads: eight problems that differ in kind."""

from hotswap.bench.workloads import images, made, text
from hotswap.bench.workloads.base import SIZES, WORKLOADS, Batch, Kind, Measures, Size, Task, Workload

__all__ = ["SIZES", "WORKLOADS", "Batch", "Kind", "Measures", "Size", "Task", "Workload", "images", "made", "text"]
