"""Units of work on a Ray cluster: what travels, who writes, and what happens when something dies.

Nothing here knows what a unit is. A study (`hotswap.studies.running.clustered`) or a benchmark
(`hotswap.bench.clustered`) gives it three things: `Work`, which a worker does; a `Keeper`, which writes down what comes
of it; and what one unit needs (`PerUnit`).

    command ── Dispatch ── one Ray task a unit ──> worker: Work, at a Desk
       ▲                                              │
    Keeper <── began, posts, checkpoints, ended ──────┘   one stream a unit, in order

The decisions, each in one place:

- **One writer.** Only the keeper, which lives in the command's process, writes the ledger and the folder. A worker
  needs no more than hotswap and the object store: the task is a generator, and what it yields comes to the command in
  order. What comes within a tenth of a second is one transaction.
- **A checkpoint counts once the keeper has it.** It comes after the rows of its epochs in the same stream, so that a
  checkpoint never knows of rows that were not written. A worker is told by the command from which one to go on, and
  never looks for one itself: a worker that was given up and still lives can do no harm.
- **Ray never repeats a unit, the command does**: from the last checkpoint that it has. What was recorded after that is
  recorded again, in the place of what was there.
- **Three failures without a new checkpoint between them are the end** of a unit, and of no other. A node that dies is
  no failure of the units on it.
- **Units may follow from others**: whenever some have been put down, the command is asked for more, and those go first.
- **A unit keeps its core.** While a task's own thread waits for Ray, its core goes to another task; so a second thread
  waits.
- **Stopping is asked for, not forced**: workers look at a switch twice a second, at the end of an epoch.
- **A node with other versions of hotswap or torch gets no units.** It is asked when the command begins, and again by
  every unit, since nodes come and go.

`units` and `placement` need no Ray; `joining`, `worker` and `dispatch` are imported by who has it.
"""

from hotswap.cluster.placement import PerUnit
from hotswap.cluster.units import Checkpoint, Desk, Keeper, Outcome, Piece, Stored, Where, Work

__all__ = ["Checkpoint", "Desk", "Keeper", "Outcome", "PerUnit", "Piece", "Stored", "Where", "Work"]
