"""Checkpoints of a race: plain containers with tensors in the host's memory, checked whole before they are loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.errors import CheckpointError
from hotswap.race.average import Average
from hotswap.race.contest import Contest
from hotswap.race.judging import Plan, Round, Score
from hotswap.race.lane import Lane
from hotswap.race.processes import local
from hotswap.race.snapshots import (
    ON_ANY_DEVICE,
    TORCHS,
    blank,
    copied,
    on_host,
    restore_optimizer,
    saved_optimizer,
    takes_step_without_data,
    wrapped,
)

__all__ = ["checked", "load", "same_kind", "save"]

VERSION = 1

COUNTERS = ("step", "turn_step", "round", "slot")
"""Numbers of a contest that are at least zero."""

LARGEST = torch.finfo(torch.float32).max
"""No number of a setting, and no loss that has been read, is larger."""

OF_WATCH = ("rollbacks", "risen", "kept_at")
"""The attributes of the winner's watch that a checkpoint holds."""


def save(contest: Contest) -> dict[str, Any]:
    """All that a race is, in new memory."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    places = {lane: number for number, lane in enumerate(contest.lanes)}
    watch, handover = contest.watch, contest.handover
    found = {
        "version": VERSION,
        **{name: getattr(contest, name) for name in COUNTERS},
        **{name: getattr(watch, name) for name in OF_WATCH},
        "total": contest.total,
        "base": None if contest.base is None else places[contest.base],
        "decay": None if contest.decay is None else list(contest.decay),
        "begun": contest.begun,
        "first_loss": contest.first_loss,
        "rate": watch.rate,
        "scale": contest.scale,
        "scheduled": contest.scheduled,
        "values": [float(value) for value in contest.values],
        "observed": [float(value) for value in contest.observed],
        "here": places[contest.here],
        "leader": places[contest.leader],
        "winner": None if contest.winner is None else places[contest.winner],
        "racing": [places[lane] for lane in contest.racing],
        "slots": [[places[lane], length] for lane, length in contest.slots],
        "baseline": _numbers(watch.baseline),
        "best": _numbers(watch.best),
        "start": contest.start,
        "judged": [handover.best, handover.last, handover.judged_at],
        "judged_model": handover.model,
        "model": handover.aside or contest.seat.saved(),
        "plan": [contest.plan.lanes, [[one.until, one.keep, one.across] for one in contest.plan.rounds]],
        "lanes": [_saved_lane(lane, here=lane is contest.here) for lane in contest.lanes],
    }
    new: dict[str, Any] = copied(found, lambda tensor, _: tensor.detach().clone())
    return new


def _numbers(score: Score | None) -> list[float] | None:
    return None if score is None else [score.mean, score.variance]


def _saved_lane(lane: Lane, *, here: bool) -> dict[str, Any]:
    average = lane.average.saved() if here and lane.average is not None else None
    return {
        "name": lane.name,
        "optimizer": type(lane.optimizer).__name__,
        "rates": lane.rates,
        "own": lane.own,
        "steps": lane.steps,
        "losses": lane.losses,
        "loss": lane.loss,
        "dropped": lane.dropped,
        "dropped_at": lane.dropped_at,
        "failures": lane.failures,
        "parked": lane.parked,
        "now": saved_optimizer(lane.optimizer) if here else None,
        "average": on_host(average),
        "scheduler": None if lane.scheduler is None else dict(lane.scheduler.state_dict()),
    }


def checked(saved: Any, contest: Contest) -> dict[str, Any]:
    """A checkpoint that fits the race; nothing is changed.

    Raises:
        CheckpointError: It is not of such a race, or it is damaged.
    """
    try:
        return _checked(saved, contest)
    except CheckpointError:
        raise
    except Exception as error:  # whatever a damaged checkpoint leads to
        raise _damaged(str(error) or type(error).__name__) from error


def _checked(saved: Any, contest: Contest) -> dict[str, Any]:
    _need(isinstance(saved, Mapping), "it is no dictionary")
    copied(dict(saved), lambda tensor, _: _need(tensor.device.type != "meta", "a tensor has no data"))
    _need(saved.get("version") == VERSION, f"its version is {saved.get('version')!r}, and this hotswap reads {VERSION}")
    theirs = [(lane["name"], lane["optimizer"], list(lane["rates"])) for lane in saved["lanes"]]
    ours = [(lane.name, type(lane.optimizer).__name__, lane.rates) for lane in contest.lanes]
    if theirs != ours:
        raise CheckpointError(
            f"The checkpoint is of a race of {_listed(theirs)}, and this race is of {_listed(ours)}; make the race "
            "with the optimizers that it had."
        )
    for name in (*COUNTERS, *OF_WATCH):
        _need(_is_count(saved[name]), f"{name} is {saved[name]!r}")
    _need(saved["total"] is None or _is_count(saved["total"]), f"total is {saved['total']!r}")
    decay = saved["decay"]
    odd = decay is not None and not (_are_numbers(decay) and len(decay) == 2 and all(map(math.isfinite, decay)))
    _need(not odd, f"decay is {decay!r}")
    for name in ("begun", "scheduled"):
        _need(isinstance(saved[name], bool), f"{name} is {saved[name]!r}")
    for name in ("rate", "scale"):
        _need(isinstance(saved[name], int | float) and math.isfinite(saved[name]), f"{name} is {saved[name]!r}")
    _need(isinstance(saved["first_loss"], float), f"first_loss is {saved['first_loss']!r}")
    places = [saved["here"], saved["leader"], *saved["racing"], *(place for place, _ in saved["slots"])]
    places += [saved[name] for name in ("winner", "base") if saved[name] is not None]
    _need(all(_is_count(place) and place < len(ours) for place in places), "it names a lane that there is not")
    _need(all(_is_count(length) for _, length in saved["slots"]), "a turn has no length")
    racing = saved["winner"] is None
    _need(bool(saved["racing"]) and saved["here"] in saved["racing"], "the lane in the model does not race")
    _need(not racing or not saved["begun"] or saved["slot"] < len(saved["slots"]), "its turn is not of its round")
    count, rounds = saved["plan"]
    _need(_is_count(count) and 0 < count <= len(ours), "its plan is of other lanes")
    for until, keep, across in rounds:
        _need(_is_count(until) and _is_count(keep) and keep and isinstance(across, bool), "its rounds are odd")
    _need(bool(rounds) or count == 1, "its plan has no rounds")
    _need(saved["round"] < len(rounds) or not racing or not saved["begun"], "its round is not of its plan")
    _need(len(saved["values"]) <= saved["turn_step"], "it has more losses than steps of its turn")
    _need(all(_are_numbers(saved[name], math.inf) for name in ("values", "observed")), "a loss is no number")
    for name in ("baseline", "best"):
        _need(
            saved[name] is None or (len(saved[name]) == 2 and _are_numbers(saved[name])), f"{name} is {saved[name]!r}"
        )
    _check_model(saved["model"], contest, "model")
    best, latest, at = saved["judged"]
    _need(_are_numbers([latest, *([] if best is None else [best])]) and _is_count(at), "what judge said is no number")
    for name in ("start", "judged_model"):
        if saved[name] is not None:
            _check_model(saved[name], contest, name)
    for number, (lane, ours_) in enumerate(zip(saved["lanes"], contest.lanes, strict=True)):
        needed = saved["begun"] and number in saved["racing"]
        _check_lane(lane, ours_, contest, here=number == saved["here"], needed=needed)
        fresh = needed and lane["parked"]["model"] is None
        _need(not fresh or saved["start"] is not None or not racing, f"{lane['name']} has no weights")
    return dict(saved)


def _check_lane(saved: Mapping[str, Any], lane: Lane, contest: Contest, *, here: bool, needed: bool) -> None:
    name = lane.name
    _need(_is_count(saved["steps"]) and _is_count(saved["failures"]), f"{name} has no number of steps")
    _need(_are_numbers(saved["losses"]), f"{name} has a loss that is no number")
    _need(saved["loss"] is None or _are_numbers([saved["loss"]]), f"{name} has a loss that is no number")
    _need(
        saved["dropped_at"] is None or _is_count(saved["dropped_at"]), f"{name} was dropped at {saved['dropped_at']!r}"
    )
    _need(isinstance(saved["dropped"], str), f"{name} was dropped for no reason")
    parked = saved["parked"]
    for part in (saved, parked):
        if part is not None and (needed or here or part["scheduler"] is not None):
            _check_scheduler(part["scheduler"], lane)
    _need(parked is not None or not needed, f"{name} has nothing to go on with")
    if here:
        _check_optimizer(saved["now"], name, lane.optimizer)
        _check_average(saved["average"], lane, contest)
    if parked is not None:
        _need(_is_count(parked["steps"]), f"{name} has no number of steps")
        if parked["model"] is not None:
            _check_model(parked["model"], contest, name)
        _check_optimizer(parked["optimizer"], name, lane.optimizer)
        _check_average(parked["average"], lane, contest)


def _check_scheduler(saved: Any, lane: Lane) -> None:
    scheduler, what = lane.scheduler, f"the schedule of {lane.name} is of another kind"
    _need((scheduler is None) == (saved is None), f"{lane.name} has another kind of schedule")
    if scheduler is None:
        return
    mine = scheduler.state_dict()
    _need(set(saved) == set(mine), what)
    _need(all(same_kind(saved[key], value) for key, value in mine.items()), what)
    _copy_of(scheduler).load_state_dict(copied(dict(saved), lambda tensor, _: tensor))  # whatever it raises or writes


def _copy_of(scheduler: Any) -> Any:
    """A scheduler of the same optimizer, whose state can be loaded without a trace in the scheduler."""
    made = object.__new__(type(scheduler))
    vars(made).update(vars(scheduler))
    if "lr_lambdas" in vars(made):
        made.lr_lambdas = [copy(one) for one in scheduler.lr_lambdas]
    if "_schedulers" in vars(made):
        made._schedulers = [_copy_of(one) for one in scheduler._schedulers]
    return made


def _check_model(saved: Mapping[str, Any], contest: Contest, where: str) -> None:
    buffers = dict(contest.seat.model.named_buffers())
    _check_tensors(saved["weights"], contest.seat.weights, f"the weights of {where}")
    _check_tensors(saved["also"], contest.seat.also, f"the further tensors of {where}")
    _need(set(saved["buffers"]) == set(buffers), f"the buffers of {where} have other names than the model's")
    stay = contest.seat.model.state_dict(keep_vars=True)  # others may grow
    for name, buffer in buffers.items():
        given = saved["buffers"][name]
        same = isinstance(given, Tensor) and given.dtype == buffer.dtype
        same = same and (given.ndim == buffer.ndim if name not in stay else given.shape == buffer.shape)
        _need(same, f"the buffer {name} of {where} is another than the model's")


def _check_average(saved: Any, lane: Lane, contest: Contest) -> None:
    _need((saved is None) == (lane.average is None), f"{lane.name} has an average or none, other than this race")
    if saved is not None:
        _need(_is_count(saved["count"]), f"the average of {lane.name} has no count")
        weights = [blank(weight) for weight in contest.seat.weights if saved["count"]]
        _check_tensors(saved["tensors"], Average.first(weights), f"the average of {lane.name}")


def _check_tensors(saved: Any, wanted: Sequence[Tensor], what: str) -> None:
    _need(isinstance(saved, list) and len(saved) == len(wanted), f"{what} are not as many as this model's")
    for one, tensor in zip(saved, wanted, strict=True):
        _need(isinstance(one, Tensor), f"{what} are no tensors")
        if one.shape != local(tensor).shape:
            raise CheckpointError(
                f"The race's checkpoint is of another model: {what} have the shape {tuple(one.shape)} where this model "
                f"has {tuple(local(tensor).shape)}."
            )
        same = one.dtype == tensor.dtype and one.layout == torch.strided
        _need(same, f"{what} have the type {one.dtype}, and not {tensor.dtype}")


def _check_optimizer(saved: Any, name: str, optimizer: Optimizer) -> None:
    """Whether an optimizer can go on from a saved state, with settings of the kinds that it has."""
    groups = optimizer.param_groups
    weights = [p for group in groups for p in group["params"]]
    _need(isinstance(saved["state"], dict) and isinstance(saved["shared"], dict), f"{name} has no state")
    _need(len(saved["groups"]) == len(groups), f"{name} has other groups")
    for theirs, ours in zip(saved["groups"], groups, strict=True):
        _need(set(optimizer.defaults) & set(ours) <= set(theirs), f"the groups of {name} have other settings")
        for key in set(ours) & set(theirs):  # some optimizers add entries in their first step
            _need(same_kind(theirs[key], ours[key]), f"{key} of {name} is {theirs[key]!r}")
            if key in ON_ANY_DEVICE and theirs[key] != ours[key]:
                raise CheckpointError(
                    f"{name} has {key}={ours[key]!r}, and in the checkpoint {key}={theirs[key]!r}; make the optimizer "
                    f"with {key}={theirs[key]!r}."
                )
    for number, state in saved["state"].items():
        _need(
            _is_count(number) and number < len(weights) and isinstance(state, dict),
            f"{name} has a state of no parameter",
        )
    for attribute, one in wrapped(optimizer):
        _check_optimizer(saved["inner"][attribute], name, one)
    _need(isinstance(saved["attributes"], dict), f"{name} has no attributes")
    for key, value in saved["attributes"].items():
        kinds = {type(value), type(getattr(optimizer, key, value))} - {type(None)}
        same = len(kinds) < 2 or kinds <= {int, float, Tensor}
        _need(same and key not in TORCHS, f"{key} of {name} is {value!r}")
    if takes_step_without_data(optimizer):
        _need(takes_step_without_data(optimizer, saved), f"{name} cannot go on from its state")
        return
    for number, state in saved["state"].items():
        ours_ = optimizer.state.get(weights[number])
        same = not ours_ or (set(state) == set(ours_) and all(same_kind(state[k], v) for k, v in ours_.items()))
        _need(same, f"the state of {name} is of other kinds")


def same_kind(theirs: object, ours: object) -> bool:
    """Whether a value of a checkpoint is of the kind of the lane's own value, and can replace it."""
    if isinstance(ours, bool | str | None):
        others = bool | str | int | float | Tensor | None
        return isinstance(theirs, others if ours is None else type(ours) | None)
    if isinstance(ours, int | float):
        is_number = isinstance(theirs, int | float) and not isinstance(theirs, bool)
        return is_number and (abs(theirs) <= LARGEST or theirs == ours)  # type: ignore[arg-type]
    if isinstance(ours, tuple | list):
        if not isinstance(theirs, tuple | list) or len(theirs) != len(ours):
            return False
        return all(same_kind(*pair) for pair in zip(theirs, ours, strict=True))
    if isinstance(ours, Tensor):
        theirs = next(iter(theirs.values()), None) if isinstance(theirs, dict) else theirs  # a marked copy
        return isinstance(theirs, Tensor) and theirs.shape == local(ours).shape
    return type(theirs) is type(ours) or (isinstance(theirs, dict) and isinstance(ours, dict))


def load(saved: Mapping[str, Any], contest: Contest) -> None:
    """Take over a checkpoint that has been checked; the model gets the weights that train."""
    mine: dict[str, Any] = copied(dict(saved), lambda tensor, _: tensor.detach().to("cpu", copy=True))
    lanes, watch, handover = contest.lanes, contest.watch, contest.handover
    for name in (*COUNTERS, "total", "begun", "first_loss", "scale", "scheduled", "values", "observed", "start"):
        setattr(contest, name, mine[name])
    for name in (*OF_WATCH, "rate"):
        setattr(watch, name, mine[name])
    contest.decay = None if mine["decay"] is None else (mine["decay"][0], mine["decay"][1])
    contest.plan = Plan(mine["plan"][0], tuple(Round(*one) for one in mine["plan"][1]))
    contest.here, contest.leader = lanes[mine["here"]], lanes[mine["leader"]]
    contest.winner, contest.base = (None if mine[name] is None else lanes[mine[name]] for name in ("winner", "base"))
    contest.racing = [lanes[place] for place in mine["racing"]]
    contest.slots = [(lanes[place], length) for place, length in mine["slots"]]
    watch.baseline, watch.best = (Score(*mine[name]) if mine[name] else None for name in ("baseline", "best"))
    handover.aside, handover.model = None, mine["judged_model"]
    handover.best, handover.last, handover.judged_at = mine["judged"]
    for lane, one in zip(lanes, mine["lanes"], strict=True):
        for name in ("steps", "losses", "loss", "dropped", "dropped_at", "failures", "parked"):
            setattr(lane, name, one[name])
        if lane is contest.here:
            restore_optimizer(lane.optimizer, one["now"])
            if lane.average is not None and one["average"] is not None:
                lane.average.load(copied(one["average"], contest.seat.on_device))
        elif one["parked"] is not None:
            restore_optimizer(lane.optimizer, one["parked"]["optimizer"])
            contest.seat.release(lane)
        else:
            lane.optimizer.state.clear()
        if lane.scheduler is not None and one["scheduler"] is not None:
            lane.scheduler.load_state_dict(one["scheduler"])
        lane.factor = math.nan  # the rates are set at the next step
    contest.seat.load(mine["model"])


def _need(holds: object, otherwise: str) -> None:
    if not holds:
        raise _damaged(otherwise)


def _damaged(why: str) -> CheckpointError:
    return CheckpointError(
        f"The race's checkpoint is damaged: {shorten(why, 200)}. Load a checkpoint that state_dict() gave."
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_numbers(values: object, most: float = LARGEST) -> bool:
    if not isinstance(values, list):
        return False
    return all(_is_count(v) or (type(v) is float and not most < abs(v) < math.inf) for v in values)


def _listed(lanes: Sequence[tuple[Any, ...]]) -> str:
    return shorten(", ".join(str(name) for name, *_ in lanes), 200)
