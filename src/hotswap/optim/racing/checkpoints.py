"""How a race is laid out in a `state_dict`.

What a race adds to its base's state is in the first parameter group, under "race", as tensors and plain values, for the
reasons that `hotswap.optim.state_dict` gives. The leader is not among the lanes that are stored: its weights and
buffers are the model's, and its state is the base's. What is no tensor is one text, in JSON: a distributed checkpoint
loads only keys that a fresh optimizer has, and which numbers there are changes from round to round. For the same reason
it has no lanes, so that it can be loaded when the race is over and not before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hotswap.arms import Arms
from hotswap.errors import CheckpointError
from hotswap.optim.probing import Probe
from hotswap.optim.probing.moves.states import copied
from hotswap.optim.racing.bases import Bases
from hotswap.optim.racing.course import Course, Out
from hotswap.optim.racing.lanes import Lane
from hotswap.optim.snapshots import Snapshot
from hotswap.optim.state_dict import KEY as HOTSWAP_KEY
from hotswap.optim.state_dict import RACE_KEY as KEY
from hotswap.optim.state_dict import groups_in
from hotswap.races import Round, Schedule

__all__ = [
    "leader_in",
    "pack_course",
    "refuse_missing_lanes",
    "refuse_other_race",
    "settings_of",
    "unpack_course",
    "with_entry",
    "without_entry",
]

PLAIN = (
    *("leader", "step", "begun", "passes", "round", "counted", "restarts", "halvings", "won", "running_loss"),
    *("highest", "early", "notes"),
)
"""Fields of a course that JSON knows."""


def with_entry(plain: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The base's state, with the race's beside it."""
    first, *others = plain["param_groups"]
    return {**plain, "param_groups": [{**first, KEY: entry}, *others]}


def without_entry(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The base's state and the race's."""
    first, *others = groups_in(state_dict)
    if HOTSWAP_KEY in first:
        raise CheckpointError("This is the state of a HotSwap; load it into one that is made as that one was.")
    if KEY not in first:
        raise CheckpointError(
            f"This state was not saved by a Race: its first parameter group has no entry {KEY!r}. A race begins at the "
            "beginning, so the state of another optimizer cannot be loaded into it."
        )
    plain = {name: value for name, value in first.items() if name != KEY}
    return {**state_dict, "param_groups": [plain, *others]}, dict(first[KEY])


def settings_of(bases: Bases, schedule: Schedule, rounds: Sequence[Round]) -> dict[str, Any]:
    """What two races must have in common for one to go on with the other's state."""
    names = [list(driver.arms.names) for driver in bases.drivers]
    axes = [_axes_of(driver.arms) for driver in bases.drivers]
    lanes: dict[str, Any] = {"names": names[0], "axes": axes[0]}
    if bases.several:
        lanes = {"optimizers": [driver.name for driver in bases.drivers], "names": names, "axes": axes}
    return {
        **lanes,
        "schedule": [schedule.total_steps, schedule.warmup, schedule.decay],
        "rounds": [list(one) for one in rounds],
    }


def _axes_of(arms: Arms) -> list[list[Any]]:
    return [[list(value) if isinstance(value, tuple) else value for value in axis] for axis in arms.axes]


def refuse_other_race(entry: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise where the state is that of a race with other settings."""
    if entry.get("optimizers") != settings.get("optimizers"):
        raise CheckpointError(
            f"The checkpoint is of another race: it has {_told(entry)}, this one {_told(settings)}; construct the race "
            "around the same optimizers, in the same order, before loading."
        )
    words = {"names": "hyperparameters", "axes": "values of its lanes", "schedule": "total_steps, warmup and decay",
             "rounds": "rounds"}  # fmt: skip
    for name, wanted in settings.items():
        if entry.get(name) != wanted:
            raise CheckpointError(
                f"The checkpoint is of another race: its {words[name]} are {entry.get(name)}, this one's {wanted}; "
                "construct the race with the same settings before loading."
            )


def _told(settings: Mapping[str, Any]) -> str:
    names = settings.get("optimizers")
    return "one base" if names is None else f"{len(names)} bases, {', '.join(names)}"


def pack_course(course: Course, probe: Probe, bases: Bases) -> dict[str, Any]:
    """What a race remembers, its parked lanes with it, as tensors and plain values."""
    parameters = probe.parameters()
    remembered = {
        **{name: getattr(course, name) for name in PLAIN},
        "sums": list(course.sums.items()),
        "losses": list(course.losses.items()),
        "out": [(number, out.step, out.reason) for number, out in course.out.items()],
        "written": sorted({name for driver in bases.drivers for name in driver.written}),
        "racing": [lane.number for lane in course.lanes],
        "averaged": course.average.steps,
    }
    return {
        "course": json.dumps(remembered),
        "lanes": {str(lane.number): lane.packed(parameters) for lane in course.lanes if lane.number != course.leader},
        "own": _own_values(course, probe),
        "masters": {str(place): value for place, value in probe.move.masters.read(parameters).items()},
        "start": {} if course.start is None else course.start.packed(parameters),
        "kept": {} if course.kept is None else course.kept.packed(parameters),
        "average": course.average.packed(parameters),
        **bases.packed(),
    }


def _own_values(course: Course, probe: Probe) -> list[dict[str, Any]]:
    """What the base has written into each group for the leader. Never an empty list, which a distributed checkpoint
    would have a key for, and not find it in that of a race that is over."""
    written = [lane.written for lane in course.lanes if lane.number == course.leader]
    return [dict(values) for values in written[0]] if written else [{} for _ in probe.base.param_groups]


def leader_in(entry: Mapping[str, Any]) -> int:
    """The lane that led when the state was saved."""
    return int(json.loads(entry["course"])["leader"])


def refuse_missing_lanes(entry: Mapping[str, Any]) -> None:
    """Raise where a race was going on, and not all of its lanes are there."""
    saved = json.loads(entry["course"])
    missing = {number for number in saved["racing"] if str(number) not in entry["lanes"]} - {saved["leader"]}
    if missing:
        raise CheckpointError(
            "The checkpoint is of a race that was going on, without its lanes: a distributed checkpoint holds the "
            "leader alone. Save a race with torch.save, in each process, or when it is over."
        )


def unpack_course(entry: Mapping[str, Any], course: Course, probe: Probe, bases: Bases, *, offload: bool) -> None:
    """The reverse, into a course that others may hold. The leader's base is on the track, with its state."""
    saved = json.loads(entry["course"])
    for name in PLAIN:
        setattr(course, name, saved[name])
    course.sums, course.losses = dict(saved["sums"]), dict(saved["losses"])
    course.out = {number: Out(step, reason) for number, step, reason in saved["out"]}
    bases.load(float(entry["initial_lr"]), entry.get("bases", ()), set(saved["written"]))
    course.start, course.kept = (Snapshot.unpacked(entry[name]) if entry[name] else None for name in ("start", "kept"))
    course.average.load(entry["average"], saved["averaged"] if entry["average"] else 0, probe.parameters())
    course.ahead, course.last_step, course.lanes = False, None, []
    for number in saved["racing"]:
        lane = Lane(number, bases.driver(number), offload)
        if number == course.leader:
            lane.state, lane.written = probe.base.state, [copied(values) for values in entry["own"]]
        else:
            lane.load(entry["lanes"][str(number)], probe)
        course.lanes.append(lane)
    probe.move.masters = course.lane(course.leader).masters if course.lanes else type(probe.move.masters)()
    probe.move.masters.write(probe.parameters(), {int(place): value for place, value in entry["masters"].items()})
