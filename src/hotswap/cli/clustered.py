"""`--on ray`: what is asked about it, and what a study shows and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotswap.cli.console import err, make_folder, need, out, plain, say
from hotswap.cli.signals import stopped_by_signals
from hotswap.cli.watching import Watching
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from hotswap.cluster import Outcome
    from hotswap.studies import StudySpec
    from hotswap.studies.running.train import RunOptions

__all__ = ["Address", "OnRay", "PerUnitAmounts", "Place", "check_for_ray", "run_on_ray"]


class Place(StrEnum):
    """Where units are trained."""

    HERE = "here"
    RAY = "ray"


Address = Annotated[
    str | None,
    typer.Option(help="Of a Ray cluster: auto, or host:port. Without it, Ray starts here.", metavar="ADDRESS"),
]
PerUnitAmounts = Annotated[
    list[str] | None,
    typer.Option(help="What a unit has on ray: cpu=2, gpu=1, or gpu=0.5 for half of one.", metavar="NAME=AMOUNT"),
]


def check_for_ray(given: Mapping[str, object], what: str) -> None:
    """Raise a SettingError if one of these options was given, which are for a cluster, and none was asked for."""
    for name, value in given.items():
        if value:
            raise SettingError(f"{name} is for {what} on a cluster; add --on ray, or leave it out.")


@dataclass(frozen=True)
class OnRay:
    """What the command was told of the cluster."""

    address: str | None
    per_unit: Sequence[str]
    storage: str | None = None


def run_on_ray(spec: StudySpec, out_dir: Path, options: RunOptions, folder: Path | None, on: OnRay) -> None:
    """Train a study on a cluster. Nothing is changed before the cluster is known to be usable."""
    need("ray", "Studies on a cluster need Ray", extra="cluster")
    from hotswap.cluster import PerUnit
    from hotswap.cluster.joining import join
    from hotswap.data import load
    from hotswap.studies import plan
    from hotswap.studies.running.clustered import run_on_cluster
    from hotswap.studies.storage.one_writer import check_unwritten
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
