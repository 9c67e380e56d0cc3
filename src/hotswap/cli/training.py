"""The commands that train: where their units are trained, how progress is shown, and how signals stop them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from threading import Thread, Timer
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotswap.cli.console import duration, err, need, out, say
from hotswap.errors import SettingError

if TYPE_CHECKING:
    from hotswap.work import Place as Doing
    from hotswap.work import Setting

__all__ = [
    "Address",
    "Device",
    "Jobs",
    "On",
    "PerUnitAmounts",
    "Place",
    "Watching",
    "Where",
    "place_of",
    "stopped_by_signals",
    "watched",
]

PATIENCE = 8.0
"""Seconds that units have to come to a place where they can stop; then the command ends as it is."""

LINES_EVERY = 60.0
"""Seconds between two lines on a unit, where there is no terminal."""


# --- where: in this process, in several processes here, or on Ray -----------------------------------------------------


class Place(StrEnum):
    """The two places at which units are trained."""

    HERE = "here"
    RAY = "ray"


Device = Annotated[str, typer.Option(help="cpu or cuda.")]
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
    said = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(said) if said.isdigit() and int(said) > 0 else max(1, (os.cpu_count() or 1) // jobs)
    with ExitStack() as open_:
        here = None if jobs == 1 and not always else lambda setting: open_.enter_context(Here(setting, jobs, is_spent))
        yield Where(device, threads, here)


@contextmanager
def _on_ray(device: str, jobs: int, options: Mapping[str, Any]) -> Iterator[Where]:
    if jobs > 1:
        raise SettingError("--jobs is for processes on this machine; on ray, say what a unit has by --per-unit.")
    need("ray", "Work on a cluster needs Ray", extra="cluster")
    from hotswap.work import PerUnit
    from hotswap.work.on_ray import OnRay, join

    per_unit = PerUnit.parse(options["--per-unit"] or (), device=device)
    if per_unit.gpu and device == "cpu":
        device = "cuda"
    with join(options["--address"], per_unit, options.get("--storage"), say) as cluster:
        yield Where(device, per_unit.threads, lambda setting: OnRay(setting, cluster))


# --- progress ---------------------------------------------------------------------------------------------------------


@dataclass
class _Bar:
    task: TaskID
    began: float
    first: int
    end: int
    of: str
    told: float


class Watching:
    """A bar for all units, and one for each that is under way; lines where there is no terminal.

    See `hotswap.work.Listener`.
    """

    def __init__(self, kind: str = "units") -> None:
        columns = (
            TextColumn("{task.description:<16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[of]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[now]}"),
        )
        self.progress = Progress(*columns, console=out, disable=not out.is_terminal)
        self.all = self.progress.add_task("all", total=None, of=kind, now="")
        self.bars: dict[str, _Bar] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        """See `Listener`."""
        self.progress.console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def planned(self, done: int, known: int) -> None:
        """See `Listener`."""
        self.progress.update(self.all, completed=done, total=known)

    def begins(self, unit: str, at: int, end: int, of: str) -> None:
        """See `Listener`."""
        if unit in self.bars:  # it was interrupted, and goes on elsewhere
            self.progress.remove_task(self.bars[unit].task)
        now = time.monotonic()
        task = self.progress.add_task(unit, total=end, completed=at, of=of, now="")
        self.bars[unit] = _Bar(task, now, at, end, of, now)

    def reaches(self, unit: str, at: int, alive: int = 1, runs: int = 1) -> None:
        """See `Listener`."""
        bar, now = self.bars[unit], time.monotonic()
        told = ""
        if at > bar.first:
            pace = (now - bar.began) / (at - bar.first)
            told = f"{duration(pace * (bar.end - at))} left"
            if bar.of == "epochs":
                told = f"{alive}/{runs} runs alive, {runs / pace:.3g} run-epochs/s, {told}"
        self.progress.update(bar.task, completed=at, now=told)
        if now - bar.told >= LINES_EVERY and not out.is_terminal:
            bar.told = now
            self.say(f"{unit}: {at}/{bar.end} {bar.of}, {told}")

    def ends(self, unit: str, how: str, why: str = "") -> None:
        """See `Listener`."""
        if unit not in self.bars:  # it failed before its first epoch
            self.begins(unit, 0, 1, "")
        bar = self.bars.pop(unit)
        self.progress.remove_task(bar.task)
        self.progress.advance(self.all, how != "put aside")
        whole = self.progress.tasks[0]
        if why:
            self.say(f"{unit}: {how}: {why}")
        elif not out.is_terminal:
            place = f" ({whole.completed:.0f} of {whole.total:.0f})" if whole.total else ""
            self.say(f"{unit}: {how} after {duration(time.monotonic() - bar.began)}{place}")


# --- stopping in good order -------------------------------------------------------------------------------------------


@contextmanager
def watched(watching: Watching, after: str, again: str) -> Iterator[Callable[[], bool]]:
    """Show the progress of a block, and stop it when a signal asks for that; gives a function that says whether.

    Args:
        watching: Shows the progress.
        after: The end of the sentence "Stopping after ...".
        again: The end of the sentence "Run the same command again to go on ...".

    Raises:
        typer.Exit: It was stopped by a signal, whose number is in the exit code.
    """
    signals: list[int] = []
    try:
        with watching, stopped_by_signals(watching.say, after) as signals:
            yield lambda: bool(signals)
    except KeyboardInterrupt:
        signals = [signal.SIGINT]
    if signals:
        err.print(f"Stopped. Run the same command again to go on{again}.")
        raise typer.Exit(128 + signals[0])


@contextmanager
def stopped_by_signals(say: Callable[[str], None], after: str) -> Iterator[list[int]]:
    """A list to which the first SIGINT or SIGTERM is added; a second one interrupts at once.

    The process ends some seconds after the first, whatever it is doing: schedulers wait for no longer, and files are
    whole whenever it ends. A signal that is ignored stays so: shells ignore SIGINT for jobs in the background, which
    Ctrl-C is not meant for.
    """
    received: list[int] = []

    def end() -> None:
        say("Stopped. Run the same command again to go on; what was under way goes on from where it was stored last.")
        os._exit(128 + received[0])

    last = Timer(PATIENCE, end)
    last.daemon = True

    def receive(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        last.start()
        # Said by a thread: this one may be in the middle of printing, or of importing what printing needs.
        Thread(
            target=say, args=(f"Stopping after {after}, or in {PATIENCE:.0f} s; once more to stop at once.",)
        ).start()

    heeded = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, receive) for number in heeded}
    try:
        yield received
    finally:
        last.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
