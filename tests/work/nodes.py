"""A Ray cluster of several nodes on this machine, real ones: each has its own raylet, which can be killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.cluster_utils import Cluster

__all__ = ["add_nodes", "cluster_of", "kill_node", "node_of"]

SMALL = {"object_store_memory": 100_000_000, "include_dashboard": False}
# A node that was killed does not answer at all, and is missed within a second; one that is only busy has half a minute.
WATCHFUL = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_failure_threshold": 3,
    "health_check_timeout_ms": 30_000,
}
# What nobody asks: Ray's log files, and whether to start machines.
ALONE = {"include_log_monitor": False, "no_monitor": True}


@contextmanager
def cluster_of(nodes: int, *, joined: bool = True) -> Iterator[Cluster]:
    """A head that trains nothing and some nodes of one core; this process is a driver of it, if `joined`."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, **SMALL, **ALONE, "_system_config": WATCHFUL}
    )
    try:
        add_nodes(cluster, nodes)
        if joined:
            ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_nodes(cluster: Cluster, count: int, **settings: Any) -> list[Any]:
    """Start nodes of one core."""
    nodes = [cluster.add_node(wait=False, num_cpus=1, **SMALL, **settings) for _ in range(count)]
    cluster.wait_for_nodes()
    return nodes


def node_of(cluster: Cluster, pid: int) -> Any:
    """The node whose worker a process is: workers are children of their raylet."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    parent = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
    return next(node for node in cluster.worker_nodes if node.all_processes["raylet"][0].process.pid == parent)


def kill_node(cluster: Cluster, node: Any) -> None:
    """As if its power had failed."""
    cluster.remove_node(node, allow_graceful=False)
