"""`hotswap bench run --on ray`: what is asked of the cluster, and what is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hotswap.cli.bench_watching import UNDER_WAY, BenchWatching
from hotswap.cli.clustered import OnRay
from hotswap.cli.console import make_folder, need, out, say
from hotswap.cli.signals import stopped_by_signals

if TYPE_CHECKING:
    from hotswap.bench.running import BenchOptions
    from hotswap.bench.workloads import Size

__all__ = ["run_bench_on_ray"]


def run_bench_on_ray(
    out_dir: Path, size: Size, device: str, options_on: Callable[[str], BenchOptions], on: OnRay
) -> tuple[bool, list[int], BenchOptions]:
    """Run a benchmark on a cluster; whether nothing is left then, the signals that came, and what was run.

    Nothing is changed before the cluster is known to be usable. `options_on` has the options for a device.
    """
    need("ray", "Benchmarks on a cluster need Ray", extra="cluster")
    from hotswap.bench.clustered import load_datasets, run_bench_on_cluster
    from hotswap.bench.comparable import check_before_running
    from hotswap.bench.store import BenchStore
    from hotswap.cluster import PerUnit
    from hotswap.cluster.joining import join
    from hotswap.studies.storage.one_writer import check_unwritten

    per_unit = PerUnit.parse(on.per_unit, device=device)
    if per_unit.gpu and device == "cpu":
        device = "cuda"
    options = options_on(device)
    check_unwritten(out_dir)
    with join(on.address, per_unit, None, say) as cluster:
        make_folder(out_dir)
        with BenchStore.create(out_dir, size) as store:
            check_before_running(store, options, device)
            with out.status("Loading data sets ..."):
                data = load_datasets(options.workloads, size, say)
            with BenchWatching() as watching, stopped_by_signals(watching.say, UNDER_WAY) as signals:
                complete = run_bench_on_cluster(store, options, data, device, watching, cluster, lambda: bool(signals))
    return complete, signals, options
