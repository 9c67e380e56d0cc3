"""The arguments of a race are checked here, before anything has changed. Each mistake gets one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

from torch import Tensor, nn, strided
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from hotswap.errors import CheckpointError, SettingError, UnsupportedError
from hotswap.race.checkpoint import same_kind
from hotswap.race.lane import Lane, lanes, named
from hotswap.race.muon import told
from hotswap.race.snapshots import parameters_of

__all__ = [
    "KEY",
    "OWN_SCHEDULE",
    "check_added",
    "check_settings",
    "check_total",
    "further_of",
    "gone_name",
    "gone_setting",
    "lanes_of",
    "opened",
    "weights_of",
]

KEY = "race"
"""The entry of a checkpoint in which the race is."""

OWN_SCHEDULE = "linear"
"""The race's own schedule: a warm-up in each lane's steps, and a linear decay to zero over the run."""

MOST_LANES = 100
"""The most lanes of a race; a run has steps for a few."""

GONE_SETTINGS = {
    "base_optimizer": "write Race(model, optimizer, total_steps=...)",
    "arms": "give a list of optimizers, one for each lane: Race(model, [AdamW(..., lr=1e-3), AdamW(..., lr=3e-3)])",
    "rounds": "rounds follow from total_steps and share",
    "least": "rounds follow from total_steps and share",
    "warmup": "choose schedule='linear', schedule=None, or a function that makes a scheduler for an optimizer",
    "decay": "choose schedule='linear', schedule=None, or a function that makes a scheduler for an optimizer",
    "clip_norm": "call torch.nn.utils.clip_grad_norm_ before step",
    "clip_value": "call torch.nn.utils.clip_grad_value_ before step",
    "loss_scale": "use torch's GradScaler: scaler.step(optimizer, loss)",
    "module": "the model is the first argument now: Race(model, ...)",
    "offload": "waiting lanes are always in the host's memory",
}

GONE_NAMES = {
    "average": "call optimizer.eval() before evaluating and optimizer.train() after it",
    "step_ahead": "call observe(loss) before the framework's own step()",
    "base": "read optimizer.leader.optimizer, or optimizer.winner.optimizer after the race",
    "last_step": "read optimizer.standings() and optimizer.leader",
    "arms": "read optimizer.standings(), which has a row for each lane",
    "cost": "each step is one forward and backward pass; optimizer.standings() has the steps of each lane",
}


def gone_setting(name: str) -> str:
    """A sentence on a setting that the race has no more, or never had."""
    if name in GONE_SETTINGS:
        return f"Race has no {name} any more; {GONE_SETTINGS[name]}."
    return f"Race has no setting {name!r}; see help(hotswap.Race) for those that it has."


def gone_name(name: str) -> str:
    """A sentence on an attribute that the race has no more; empty for one that it never had."""
    return f"Race has no {name} any more; {GONE_NAMES[name]}." if name in GONE_NAMES else ""


def check_total(total_steps: Any) -> None:
    """Refuse what is no number of steps."""
    if total_steps is not None and (
        not isinstance(total_steps, int) or isinstance(total_steps, bool) or total_steps < 1
    ):
        raise SettingError(
            f"Race(total_steps={total_steps!r}): give the number of steps of the run, such as epochs * len(loader), or "
            "None."
        )


def check_settings(*, judge: Any, schedule: Any, share: Any) -> None:
    """Refuse settings that cannot be meant."""
    if judge is not None and not callable(judge):
        raise SettingError(
            f"Race(judge={judge!r}): give a function of the model that returns a number, lower is better."
        )
    if not (schedule is None or callable(schedule) or schedule == OWN_SCHEDULE):
        raise SettingError(
            f"Race(schedule={schedule!r}): choose {OWN_SCHEDULE!r}, None, or a function that makes a torch scheduler "
            "for an optimizer."
        )
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise SettingError(f"Race(share={share!r}): give a share of all steps between 0 and 1, such as 0.15.")


def lanes_of(model: Any, optimizers: Any) -> list[Lane]:
    """The lanes of a race, from what its user gave."""
    if isinstance(model, Optimizer) or (isinstance(model, list | tuple) and model and isinstance(model[0], Optimizer)):
        raise SettingError("Race takes the model first; write Race(model, optimizer, total_steps=...).")
    if not isinstance(model, nn.Module):
        given = told(model)
        raise SettingError(f"Race needs the model first, and was given {given}; write Race(model, total_steps=...).")
    if any(is_lazy(p) for p in model.parameters()):
        raise SettingError(
            "Race(model): the model has lazy parameters; run one forward pass first, so that they have shapes."
        )
    if optimizers is None:
        return named(lanes(model), None)
    if isinstance(optimizers, Optimizer):
        _check_lane(optimizers)
        return named([optimizers, *lanes(model)], optimizers)
    if isinstance(optimizers, str | Mapping | type | nn.Module) or not isinstance(optimizers, Iterable):
        raise SettingError(
            f"Race(model, {told(optimizers)}): give an optimizer, made with the model's parameters, or a list of them."
        )
    given_ = list(optimizers)
    if not given_:
        raise SettingError("Race(model, []): give at least one optimizer, or None for the default lanes.")
    if len(given_) > MOST_LANES:
        raise SettingError(f"Race(model, [...]): {len(given_)} lanes are too many; give at most {MOST_LANES}.")
    for one in given_:
        _check_lane(one)
    if len({id(one) for one in given_}) < len(given_):
        raise SettingError("Race(model, [...]): one optimizer is there twice, and each lane needs its own.")
    return named(given_, None)


def _check_lane(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise SettingError(f"Race(model, ...): {told(optimizer)} is no optimizer; make it with the model's parameters.")
    homes = {home.__module__ for home in type(optimizer).__mro__}
    if any(home.startswith(("hotswap.optim", "hotswap.race.race")) for home in homes):
        raise UnsupportedError(
            f"A {type(optimizer).__name__} cannot be a lane, because it swaps optimizers or rates itself; give the "
            "race the optimizer that it is made of."
        )
    if isinstance(optimizer, LBFGS):
        raise UnsupportedError("LBFGS cannot be a lane, because it evaluates a closure several times a step.")
    state = next((one.state for one in vars(optimizer).values() if isinstance(one, Optimizer)), optimizer.state)
    if any(state.values()):
        raise SettingError(
            f"Race(model, ...): {type(optimizer).__name__} has taken steps already, and lanes start alike; make a new "
            "one."
        )


def weights_of(model: nn.Module, racing: Sequence[Lane]) -> list[Tensor]:
    """The weights that all lanes train."""
    first = parameters_of(racing[0].optimizer)
    names = {id(p): name for name, p in model.named_parameters()}
    for lane in racing:
        mine = parameters_of(lane.optimizer)
        strange = [p for p in mine if id(p) not in names]
        if strange:
            raise SettingError(
                f"{lane.name} trains {len(strange)} parameters that are not the model's; make it with "
                "model.parameters()."
            )
        if {id(p) for p in mine} != {id(p) for p in first}:
            other = {id(p) for p in mine} ^ {id(p) for p in first}
            some = sorted(names[one] for one in other)[0]
            raise SettingError(
                f"{lane.name} and {racing[0].name} train different parameters, such as {some}; make all optimizers of "
                "a race with the same parameters."
            )
    return first


def further_of(also: Any) -> list[Tensor]:
    """The further tensors of a lane."""
    given = list(also) if isinstance(also, Iterable) and not isinstance(also, Tensor | str | Mapping) else [None]
    tensors = [one for one in given if isinstance(one, Tensor)]
    if len(tensors) < len(given):
        raise SettingError(f"Race(also={told(also)}): give a list of tensors, such as teacher.parameters().")
    return tensors


def check_added(group: Any, model: nn.Module) -> None:
    """Refuse further parameters that are not the model's, before any lane has them."""
    given = group.get("params") if isinstance(group, Mapping) else None
    if not isinstance(given, Iterable):
        raise SettingError("add_param_group: give a dictionary whose 'params' are a list of parameters.")
    added = [given] if isinstance(given, Tensor) else given if isinstance(given, list | tuple) else []
    known = {id(p) for p in model.parameters()}
    strange = sum(isinstance(p, Tensor) and id(p) not in known for p in added)
    if strange:
        raise SettingError(
            f"add_param_group: {strange} parameters are not the model's; make them part of the model first."
        )


def opened(state_dict: Any, groups: Sequence[dict[str, Any]]) -> tuple[Any, list[dict[str, Any]]]:
    """The race's part of a checkpoint, and its groups."""
    if not isinstance(state_dict, Mapping) or KEY not in state_dict:
        entry = state_dict.get("param_groups") if isinstance(state_dict, Mapping) else None
        if isinstance(entry, list) and entry and isinstance(entry[0], Mapping) and KEY in entry[0]:
            raise CheckpointError(
                "The checkpoint is of a race of an earlier version, whose lanes were copies on the device, and cannot "
                "go on; load the model's weights and begin a new race."
            )
        raise CheckpointError(
            "The checkpoint is not of a race; to start from an optimizer's own checkpoint, load it into that optimizer "
            "after the race."
        )
    saved = state_dict.get("param_groups")
    if (
        not isinstance(saved, list)
        or len(saved) != len(groups)
        or not all(isinstance(group, Mapping) for group in saved)
    ):
        raise CheckpointError(
            f"The race's checkpoint is damaged: it has other groups than the {len(groups)} of this race."
        )
    for group, mine in zip(saved, groups, strict=True):
        for name, value in group.items():
            if name != "params" and not same_kind(_number(value), _number(mine.get(name, 1.0))):
                raise CheckpointError(f"The race's checkpoint is damaged: {name!r} is {shorten(repr(value), 100)}.")
    return state_dict[KEY], [dict(group) for group in saved]


def _number(value: Any) -> Any:
    """The number in a tensor that has only one: a race sets rates as plain numbers. Other values stay as they are."""
    one = isinstance(value, Tensor) and value.numel() == 1 and value.layout is strided and not value.is_meta
    return value.item() if one else value
