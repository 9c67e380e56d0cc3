"""How the benchmark's runs are shown: a bar for each that is under way, or lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotswap.cli.console import out

if TYPE_CHECKING:
    from hotswap.bench.runs import Point, Result, Run

__all__ = ["UNDER_WAY", "BenchWatching"]

UNDER_WAY = "the runs that are under way"
"""After what a benchmark stops that is asked to."""


class BenchWatching:
    """A bar for all runs, and one for each that is under way."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description:<52}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=out, disable=not out.is_terminal)
        self.all = self.progress.add_task("all runs", total=None, unit="runs")
        self.bars: dict[Run, TaskID] = {}
        self.began: dict[Run, float] = {}
        self.lock = threading.Lock()

    def __enter__(self) -> BenchWatching:
        self.progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        """See `Watcher`."""
        self.progress.console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def planned(self, done: int, known: int) -> None:
        """See `Watcher`."""
        self.progress.update(self.all, completed=done, total=known)

    def begins(self, run: Run) -> None:
        """See `Watcher`."""
        with self.lock:
            if run in self.bars:  # it was interrupted, and begins anew elsewhere
                self.progress.remove_task(self.bars[run])
            self.began[run] = time.monotonic()
            self.bars[run] = self.progress.add_task(run.id, total=100, unit="%")

    def measured(self, run: Run, point: Point) -> None:
        """See `Watcher`."""
        self.progress.update(self.bars[run], completed=point.percent)

    def ends(self, result: Result) -> None:
        """See `Watcher`."""
        run = result.run
        if run not in self.bars:  # it was killed before it began
            self.begins(run)
        with self.lock:
            self.progress.remove_task(self.bars.pop(run))
            seconds = time.monotonic() - self.began.pop(run)
            self.progress.advance(self.all)
        if result.state != "finished":
            self.say(f"{run.id}: {result.state}: {result.reason}")
        elif not out.is_terminal:
            self.say(f"{run.id}: finished after {seconds:.0f} s{self._place()}")

    def _place(self) -> str:
        """How many runs are done of those that are known."""
        task = self.progress.tasks[self.all]
        return "" if task.total is None else f" ({task.completed:.0f} of {task.total:.0f})"
