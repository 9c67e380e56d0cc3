"""How training is shown: a bar for each unit at hand, or lines where there is no terminal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotswap.cli.console import out

if TYPE_CHECKING:
    from hotswap.studies import Unit

__all__ = ["LINES_EVERY", "Watching", "duration"]

LINES_EVERY = 60.0  # seconds, where there is no terminal


def duration(seconds: float | None) -> str:
    """As people say it; empty if it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else (f"{minutes} min {rest:02} s" if minutes else f"{rest} s")


@dataclass
class _Bar:
    task: TaskID
    began: float
    first: int
    last: int
    told: float


class Watching:
    """A progress bar for each unit at hand.

    Args:
        total: Of units on a cluster, how many there are: a bar counts them, and those that end have none of their own.
    """

    def __init__(self, total: int | None = None) -> None:
        columns = (
            TextColumn("{task.description:<16}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[of]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[now]}"),
        )
        self.progress = Progress(*columns, console=out, disable=not out.is_terminal)
        self.all = None if total is None else self.progress.add_task("all", total=total, of="units", now="")
        self.bars: dict[str, _Bar] = {}

    def __enter__(self) -> Watching:
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        """See `Listener`."""
        self.progress.console.print(text, style="dim", highlight=False, markup=False)

    def unit_begins(self, unit: Unit, epoch: int, epochs: int) -> None:
        """See `Listener`."""
        if unit.id in self.bars:  # it was interrupted, and goes on elsewhere
            self.progress.remove_task(self.bars[unit.id].task)
        task = self.progress.add_task(unit.id, total=epochs, completed=epoch, of="epochs", now="")
        now = time.monotonic()
        self.bars[unit.id] = _Bar(task, now, epoch, epochs, now)

    def epoch_done(self, unit: Unit, epoch: int, alive: int, seconds: float) -> None:
        """See `Listener`."""
        bar = self.bars[unit.id]
        pace = (time.monotonic() - bar.began) / (epoch - bar.first)
        left = duration(pace * (bar.last - epoch))
        now = f"{alive}/{len(unit.runs)} runs alive, {len(unit.runs) / pace:.3g} run-epochs/s, {left} left"
        self.progress.update(bar.task, completed=epoch, now=now)
        if time.monotonic() - bar.told >= LINES_EVERY:
            self._tell(unit, bar, f"epoch {epoch}, {now}")

    def unit_ends(self, unit: Unit, *, finished: bool) -> None:
        """See `Listener`."""
        end = "finished" if finished else "put aside"
        if unit.id not in self.bars:  # it failed before its first epoch
            self.unit_begins(unit, 0, 1)
        bar = self.bars.pop(unit.id)
        self.progress.update(bar.task, now=end)
        self._tell(unit, bar, f"{end} after {duration(time.monotonic() - bar.began)}")
        if self.all is not None:
            self.progress.remove_task(bar.task)
            self.progress.advance(self.all, finished)

    def _tell(self, unit: Unit, bar: _Bar, text: str) -> None:
        """A line for a file that nobody can draw bars in."""
        bar.told = time.monotonic()
        if not out.is_terminal:
            out.print(f"{unit.id}: {text}", highlight=False, markup=False, soft_wrap=True)
