"""`hotswap study run --on ray`: what is asked, what is shown, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hotswap.cli.console import err, make_folder, need, out, plain, say
from hotswap.cli.signals import stopped_by_signals
from hotswap.cli.watching import Watching

if TYPE_CHECKING:
    from hotswap.cluster import Outcome
    from hotswap.studies import StudySpec
    from hotswap.studies.running.train import RunOptions

__all__ = ["OnRay", "run_on_ray"]


@dataclass(frozen=True)
class OnRay:
    """What the command was told of the cluster."""

    address: str | None
    per_unit: Sequence[str]
    storage: str | None


def run_on_ray(spec: StudySpec, out_dir: Path, options: RunOptions, folder: Path | None, on: OnRay) -> None:
    """Train a study on a cluster. Nothing is changed before the cluster is known to be usable."""
    need("ray", "Studies on a cluster need Ray", extra="cluster")
    from hotswap.cluster import PerUnit
    from hotswap.cluster.joining import join
    from hotswap.data import load
    from hotswap.studies import plan
    from hotswap.studies.running.clustered import check_unwritten, run_on_cluster
    from hotswap.studies.storage.store import Store

    per_unit = PerUnit.parse(on.per_unit, device=options.device)
    if per_unit.gpu and options.device == "cpu":
        options = replace(options, device="cuda")
    check_unwritten(out_dir)
    with join(on.address, per_unit, on.storage, say) as cluster:
        make_folder(out_dir)
        with out.status(f"Loading {spec.dataset} ..."):
            data = load(spec.dataset, folder=folder, report=say)
        with Store.create(out_dir, spec, precision=options.precision, max_runs=options.max_runs) as store:
            units = plan(spec, options.max_runs)
            left = sum(store.finished(unit) < spec.epochs for unit in units)
            try:
                with Watching(left) as watching, stopped_by_signals(watching.say) as signals:
                    outcome = run_on_cluster(store, spec, data, options, watching, cluster, lambda: bool(signals))
            except KeyboardInterrupt:
                err.print("Stopped. Run the same command again to go on from the last checkpoint.")
                raise typer.Exit(130) from None
            complete = all(store.finished(unit) >= spec.epochs for unit in units)
    _tell(outcome, out_dir, len(spec.runs()) if complete else 0, signals)


def _tell(outcome: Outcome, out_dir: Path, runs: int, signals: list[int]) -> None:
    for unit, why in outcome.failed.items():
        err.print(f"[bold red]{unit} failed three times:[/] {plain(why)}", soft_wrap=True)
        err.print(f"All that was said of it is in {out_dir / 'units' / f'{unit}.error'}", style="dim", soft_wrap=True)
    if runs:
        finished = "The run is" if runs == 1 else f"All {runs} runs are"
        out.print(f"{finished} finished. Next: hotswap study export {out_dir} FILE.parquet")
    elif signals:
        err.print("Stopped at checkpoints. Run the same command again to go on from them.")
        raise typer.Exit(128 + signals[0])
    else:
        out.print(f"Not everything is finished. See: hotswap study status {out_dir}")
    if outcome.failed:
        raise typer.Exit(1)
