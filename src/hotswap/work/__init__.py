"""Units of work, done here or on a Ray cluster: the same function in this process, in others, or on other machines.

    command ── do_all ── a Place ──> function(shared, payload, stopping) ──> what it returns
       ▲                                                                        │
    Keeper <──────────────── done, failed, stopped ─────────────────────────────┘

A place does the function with a unit: `InThisProcess`, `Here` (processes of this machine) or `OnRay`. The command
alone holds units and stores what comes of them. A function that returns None has stopped before the end of its unit.
A process that dies is replaced, and its unit is done again, by `Here` or by Ray itself, some times before it fails.

`hotswap.work.on_ray` is imported only by who has Ray.
"""

from hotswap.work.here import Here, InThisProcess
from hotswap.work.loop import Keeper, Listener, Outcome, Place, Setting, Unit, UnitError, WorkerDiedError, do_all
from hotswap.work.per_unit import PerUnit

__all__ = [
    "Here",
    "InThisProcess",
    "Keeper",
    "Listener",
    "Outcome",
    "PerUnit",
    "Place",
    "Setting",
    "Unit",
    "UnitError",
    "WorkerDiedError",
    "do_all",
]
