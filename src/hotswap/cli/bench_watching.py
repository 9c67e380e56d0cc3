"""How the benchmark's runs are shown: a bar for each that is under way, or lines where there is no terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hotswap.cli.console import out

if TYPE_CHECKING:
    from hotswap.bench.runs import Result, Run

__all__ = ["BenchWatching"]


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
        self.bars: dict[str, TaskID] = {}
        self.began: dict[str, float] = {}

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
        self.began[run.id] = time.monotonic()
        self.bars[run.id] = self.progress.add_task(run.id, total=100, unit="%")

    def measured(self, run: str, percent: int) -> None:
        """See `Watcher`."""
        self.progress.update(self.bars[run], completed=percent)

    def ends(self, result: Result) -> None:
        """See `Watcher`."""
        run = result.run.id
        self.progress.remove_task(self.bars.pop(run))
        seconds = time.monotonic() - self.began.pop(run)
        self.progress.advance(self.all)
        if result.state != "finished":
            self.say(f"{run}: {result.state}: {result.reason}")
        elif not out.is_terminal:
            self.say(f"{run}: finished after {seconds:.0f} s{self._place()}")

    def _place(self) -> str:
        """How many runs are done of those that are known."""
        task = self.progress.tasks[self.all]
        return "" if task.total is None else f" ({task.completed:.0f} of {task.total:.0f})"
