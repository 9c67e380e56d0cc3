"""The workloads: eight problems that differ in kind, one file each."""

from hotswap.bench.workloads import (
    autoencoder,
    cifar_resnet,
    fashion_convolution,
    gaussian_regression,
    logistic_regression,
    paper_network,
    recurrent_text,
    transformer_text,
)
from hotswap.bench.workloads.base import SIZES, WORKLOADS, Batch, Kind, Measures, Size, Task, Workload

__all__ = [
    "SIZES",
    "WORKLOADS",
    "Batch",
    "Kind",
    "Measures",
    "Size",
    "Task",
    "Workload",
    "autoencoder",
    "cifar_resnet",
    "fashion_convolution",
    "gaussian_regression",
    "logistic_regression",
    "paper_network",
    "recurrent_text",
    "transformer_text",
]
