"""The options of a command that say where it trains: in this process, in several processes here, or on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotswap.cli.console import need, say
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from hotswap.work import Place as Doing
    from hotswap.work import Setting

__all__ = ["Address", "Jobs", "On", "PerUnitAmounts", "Place", "Where", "place_of"]


class Place(StrEnum):
    """The two places at which units are trained."""

    HERE = "here"
    RAY = "ray"


On = Annotated[Place, typer.Option(help="On this machine, or many at once on ray: this machine's, or a cluster's.")]
Jobs = Annotated[int, typer.Option(help="Processes of this machine that train side by side.", min=1)]
Address = Annotated[
    str | None,
    typer.Option(help="Of a Ray cluster: auto, or host:port. Without it, Ray starts here.", metavar="ADDRESS"),
]
PerUnitAmounts = Annotated[
    list[str] | None,
    typer.Option(help="What a unit has on ray: cpu=2, gpu=1, or gpu=0.5 for half of one.", metavar="NAME=AMOUNT"),
]


@dataclass(frozen=True)
class Where:
    """The device and the threads of a command's units; `elsewhere` trains a unit outside of this process."""

    device: str
    threads: int
    elsewhere: Callable[[Setting], Doing] | None = None


@contextmanager
def place_of(
    on: Place,
    device: str,
    jobs: int,
    ray_options: Mapping[str, Any],
    *,
    always: bool = False,
    is_spent: Callable[[Any], bool] = lambda _: False,
) -> Iterator[Where]:
    """The place at which a command trains. Nothing is changed before a cluster is known to be usable.

    Args:
        on: Here or on Ray.
        device: Asked for by the command.
        jobs: Processes, if here.
        ray_options: `--address`, `--per-unit` and `--storage`, by these names.
        always: Whether even one job is a process of its own.
        is_spent: See `hotswap.work.Here`.
    """
    if on is Place.RAY:
        with _on_ray(device, jobs, ray_options) as where:
            yield where
        return
    for name, value in ray_options.items():
        if value:
            raise SettingError(f"{name} is for a cluster; add --on ray, or leave it out.")
    from hotswap.studies.training import device_named
    from hotswap.work import Here

    device_named(device)
    with ExitStack() as open_:
        threads = _threads(jobs)
        here = None if jobs == 1 and not always else lambda setting: open_.enter_context(Here(setting, jobs, is_spent))
        yield Where(device, threads, here)


@contextmanager
def _on_ray(device: str, jobs: int, options: Mapping[str, Any]) -> Iterator[Where]:
    if jobs > 1:
        raise SettingError("--jobs is for processes on this machine; on ray, say what a unit has by --per-unit.")
    need("ray", "Work on a cluster needs Ray", extra="cluster")
    from hotswap.work import PerUnit
    from hotswap.work.on_ray import OnRay, join

    per_unit = PerUnit.parse(options.get("--per-unit") or (), device=device)
    if per_unit.gpu and device == "cpu":
        device = "cuda"
    storage: Path | None = options.get("--storage")
    with join(options.get("--address"), per_unit, storage, say) as cluster:
        yield Where(device, per_unit.threads, lambda setting: OnRay(setting, cluster))


def _threads(jobs: int) -> int:
    """The threads of each process: as many as the environment says, or else its share of the cores."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) > 0 else max(1, (os.cpu_count() or 1) // jobs)
