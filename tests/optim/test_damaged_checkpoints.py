"""Damaged checkpoints: each loads and can be used, or is refused in one sentence and has changed nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hotswap import (
    Armijo,
    CheckpointError,
    EpsilonGreedy,
    Exp3S,
    HotSwap,
    HotSwapSGD,
    NoSearch,
    RelativeReduction,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)
from tests.optim.helpers import batches, model, own_entry, through_a_file, train, weights

Build = Callable[[nn.Module], HotSwap]
RATES = [1.0, 0.3, 0.1, 0.03]
optim = torch.optim


def halves(net: nn.Module) -> list[dict[str, Any]]:
    first, *others = net.parameters()
    return [{"params": [first], "lr": 0.5}, {"params": others, "weight_decay": 0.01}]


def adam_of(kind: Callable[..., torch.optim.Optimizer], **settings: Any) -> Build:
    return lambda net: HotSwap(kind(net.parameters(), lr=0.01, **settings), {"lr": RATES})


BUILDS: dict[str, Build] = {
    "sgd": HotSwapSGD,
    "momentum": lambda net: HotSwapSGD(net, RATES, momentum=0.9, weight_decay=1e-4, clip_norm=1.0),
    "groups": lambda net: HotSwapSGD(halves(net), RATES, momentum=0.5, module=net, reward=RelativeReduction()),
    "adamw": adam_of(optim.AdamW),
    "amsgrad": adam_of(optim.Adam, amsgrad=True),
    "groups of AdamW": lambda net: HotSwap(optim.AdamW(halves(net), lr=0.01), {"lr": RATES}, search=Armijo()),
    "rmsprop": adam_of(optim.RMSprop, centered=True, momentum=0.5),
    "adadelta": adam_of(optim.Adadelta),
    "adagrad": adam_of(optim.Adagrad),
    "nadam": adam_of(optim.NAdam),
    "adafactor": adam_of(optim.Adafactor),
    "several": lambda net: HotSwap(
        optim.Adam(net.parameters()), {"lr": RATES, "betas": [(0.9, 0.99), (0.5, 0.9)]}, factored=True
    ),
    "momenta": lambda net: HotSwap(
        optim.SGD(net.parameters(), lr=1.0), {"lr": RATES, "momentum": [0.0, 0.9]}, bandit=EpsilonGreedy(), seed=3
    ),
    "window": lambda net: HotSwapSGD(net, RATES, bandit=SlidingWindowUCB(window=9), search_every=3),
    "exp3s": lambda net: HotSwapSGD(net, RATES, bandit=Exp3S(), search_when="risen"),
    "thompson": lambda net: HotSwapSGD(net, RATES, bandit=ThompsonSampling(), search_when="unsure"),
    "untried": lambda net: HotSwapSGD(net, RATES, momentum=0.9, search=NoSearch()),
    "seldom": lambda net: HotSwap(
        optim.AdamW(halves(net), lr=0.01), {"lr": RATES}, bandit=SmoothedUCB(), search_every=2, loss_scale=1024.0
    ),
    "setters": lambda net: HotSwap(
        optim.SGD(net.parameters(), lr=1.0),
        {"smoothing": [0.0, 0.1], "lr": RATES},
        setters={"smoothing": lambda value: setattr(net, "smoothing", value)},
    ),
}

Path = tuple[Any, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to everything in a checkpoint, containers as well as values."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def with_entry(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy in which the container at the end of the path has changed; tuples become other tuples."""
    if not path:
        return change(value)
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = with_entry(value[path[0]], path[1:], change)
    return tuple(copied) if isinstance(value, tuple) else copied


def without(container: Any, key: Any) -> Any:
    kept = dict(container) if isinstance(container, dict) else list(container)
    del kept[key]
    return kept


def swapped(container: Any, one: Any, other: Any) -> Any:
    mixed = dict(container) if isinstance(container, dict) else list(container)
    mixed[one], mixed[other] = mixed[other], mixed[one]
    return mixed


def spoiled(tensor: Tensor, number: float) -> Tensor:
    changed = tensor.detach().clone()
    if changed.numel() and (changed.is_floating_point() or not math.isnan(number)):
        changed.view(-1)[-1] = number if changed.is_floating_point() else int(max(-(2**63), min(number, 2**63 - 1)))
    return changed


OTHERS: tuple[Any, ...] = (
    *(None, True, False, "x", "", b"x", -1, 0, 1, 7, 10**30, -(10**30), 10**400, 0.5, -0.5, 1e300),
    *(float("nan"), float("inf"), -float("inf"), 1 + 1j, [], [[]], [[1], [2]], (), {}, {"x": 1}, {1: {}}, object()),
    *(torch.zeros(()), torch.zeros(3, 3), torch.tensor(float("nan")), torch.tensor([True]), torch.tensor(1j)),
    *(torch.zeros(1, dtype=torch.int64), torch.zeros(2, 2).to_sparse(), torch.zeros(1, device="meta")),
)
TENSORS: tuple[Callable[[Tensor], Any], ...] = (
    lambda t: t.reshape(-1)[:-1],
    lambda t: t[None],
    lambda t: t.reshape(-1),
    lambda t: t.mT if t.dim() > 1 else t[None, None],
    lambda t: torch.cat([t, t]) if t.dim() else torch.stack([t, t]),
    *(lambda t, kind=kind: t.to(kind) for kind in (torch.int64, torch.int8, torch.bool, torch.float16, torch.bfloat16)),
    *(lambda t, kind=kind: t.to(kind) for kind in (torch.float64, torch.complex64)),
    *(lambda t, number=number: spoiled(t, number) for number in (float("nan"), float("inf"), -1.0, 1e3)),
    lambda t: t.tolist(),
    lambda t: t.to("meta"),
    lambda t: t.detach().clone().requires_grad_() if t.is_floating_point() else t.float(),
)


def damaged(state: dict[str, Any], places: list[Path], chance: random.Random) -> tuple[dict[str, Any], str]:
    """A copy of a checkpoint with one thing wrong, and what that is; `places` are its `paths`."""
    path = chance.choice(places)
    *way, key = path
    kind = chance.choice(("delete", "replace", "replace", "tensor", "tensor", "swap", "add"))
    container, value = at(state, tuple(way)), at(state, path)
    if kind == "tensor" and isinstance(value, Tensor):
        which = chance.randrange(len(TENSORS))
        return with_entry(state, path, TENSORS[which]), f"tensor {which} at {path}"
    if kind == "swap" and len(container) > 1:
        others = [name for name in (container if isinstance(container, dict) else range(len(container))) if name != key]
        other = chance.choice(others)
        return with_entry(state, tuple(way), lambda c: swapped(c, key, other)), f"{key!r} and {other!r} at {way}"
    if kind == "delete":
        return with_entry(state, tuple(way), lambda c: without(c, key)), f"nothing at {path}"
    if kind == "add" and isinstance(container, dict):
        extra = chance.choice((7, "7", "extra", None, -1, True))
        return with_entry(state, tuple(way), lambda c: {**c, extra: value}), f"{extra!r} at {way}"
    new = chance.choice(OTHERS)
    return with_entry(state, path, lambda _: new), f"{new!r} at {path}"


def frozen(value: Any) -> Any:
    """The same in a form that can be compared, bit for bit: NaN is itself, and 1 is neither 1.0 nor True."""
    if isinstance(value, Tensor):
        plain = value.detach().reshape(-1).view(torch.uint8)
        return "tensor", str(value.dtype), tuple(value.shape), bytes(plain.numpy())
    if isinstance(value, dict):
        return {repr(key): frozen(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(frozen, value)]
    return type(value).__name__, repr(value)


def everything(net: nn.Module, optimizer: HotSwap) -> Any:
    """All that a refused checkpoint must leave as it was."""
    memory, state = optimizer._memory, optimizer.state_dict()  # with the bandit, the groups and the loss scale
    known = [memory.searched, memory.pace, memory.missed, memory.proposal is None, optimizer.last_step]
    return frozen([weights(net), state, known, optimizer._setters.now, vars(net).get("smoothing")])


def used(net: nn.Module, optimizer: HotSwap) -> None:
    """It can be trained on, and what it saves can be loaded."""
    train(net, optimizer, batches(3, seed=4))
    assert 0 <= own_entry(optimizer)["in_force"] < len(optimizer.arms)
    if all(finite(values) for values in optimizer.state.values()):  # it may be told to overflow
        optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
    str(optimizer.statistics())


def finite(values: dict[str, Any]) -> bool:
    return all(bool(value.isfinite().all()) for value in values.values() if isinstance(value, Tensor))


def trained(build: Build, seed: int = 0, steps: int = 7) -> tuple[nn.Module, HotSwap]:
    net = model(seed)
    optimizer = build(net)
    train(net, optimizer, batches(steps))
    return net, optimizer


MUTATIONS = 200


@pytest.mark.filterwarnings("ignore::UserWarning")  # of other settings, where the damage is in these
@pytest.mark.parametrize("name", BUILDS)
def test_damage_is_refused_or_does_no_harm(name: str) -> None:
    chance = random.Random(name)
    net, optimizer = trained(BUILDS[name])
    state = through_a_file(optimizer.state_dict())
    net, optimizer = trained(BUILDS[name], seed=1, steps=4)
    before, places = everything(net, optimizer), list(paths(state))
    refused = 0
    for _ in range(MUTATIONS):
        changed, what = damaged(state, places, chance)
        try:
            optimizer.load_state_dict(changed)
        except CheckpointError as error:
            refused += 1
            said = str(error)
            assert said.isprintable(), what
            assert said.endswith("."), what
            assert len(said) < 700, what
            assert everything(net, optimizer) == before, what
        except BaseException as error:
            raise AssertionError(what) from error
        else:
            try:
                used(net, optimizer)
            except Exception as error:
                raise AssertionError(what) from error
            net, optimizer = trained(BUILDS[name], seed=1, steps=4)
    assert MUTATIONS // 3 < refused < MUTATIONS


@pytest.mark.parametrize("name", BUILDS)
def test_what_is_whole_is_loaded_and_goes_on_the_same(name: str) -> None:
    net, optimizer = trained(BUILDS[name])
    state = through_a_file(optimizer.state_dict())
    other, resumed = trained(BUILDS[name], seed=1, steps=4)
    other.load_state_dict(net.state_dict())
    resumed.load_state_dict(state)
    used(net, optimizer)
    used(other, resumed)
    assert frozen(weights(net)) == frozen(weights(other))


class Wider(nn.Sequential):
    """As the small model, with wider layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 9), nn.Sigmoid(), nn.Linear(9, 3))


@pytest.mark.parametrize(
    "name", [name for name in BUILDS if name not in ("sgd", "window", "exp3s", "thompson", "setters")]
)
def test_the_state_of_other_layer_widths_is_refused(name: str) -> None:
    wide = Wider()
    optimizer = BUILDS[name](wide)
    train(wide, optimizer, batches(7))
    net, other = trained(BUILDS[name])
    before = everything(net, other)
    with pytest.raises(CheckpointError, match=r"must be of the shape \(.*\), as this model has it, not \("):
        other.load_state_dict(optimizer.state_dict())
    assert everything(net, other) == before


def test_a_base_that_raises_while_it_loads_changes_nothing() -> None:
    class Raising(torch.optim.SGD):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            super().load_state_dict(state_dict)
            raise KeyError("something of its own\nin two lines")

    def build(net: nn.Module) -> HotSwap:
        return HotSwap(Raising(net.parameters(), lr=1.0, momentum=0.9), {"lr": RATES})

    state = trained(build)[1].state_dict()
    net, optimizer = trained(build, seed=1)
    before = everything(net, optimizer)
    with pytest.raises(CheckpointError, match=r"Raising cannot load its state \(KeyError: 'something of its own"):
        optimizer.load_state_dict(state)
    assert everything(net, optimizer) == before


def test_a_setter_that_raises_changes_nothing() -> None:
    net = model()
    fails: list[str] = []

    def careful(value: Any) -> None:
        net.smoothing = value
        if fails:
            raise ValueError(fails.pop())

    def build() -> HotSwap:
        base = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
        return HotSwap(base, {"smoothing": [0.0, 0.1], "lr": RATES}, setters={"smoothing": careful})

    optimizer = build()
    train(net, optimizer, batches(2))
    state = through_a_file(optimizer.state_dict())
    entry = state["param_groups"][0]["hotswap"]
    entry["in_force"] = (entry["in_force"] + len(RATES)) % (2 * len(RATES))  # the other value
    before = everything(net, optimizer)
    fails.append("not now")
    with pytest.raises(ValueError, match="not now"):
        optimizer.load_state_dict(state)
    assert everything(net, optimizer) == before


def test_a_bandit_that_cannot_read_its_own_state_changes_nothing() -> None:
    class Moved(EpsilonGreedy):
        state_version = 2

        def migrate(self, arrays: dict[str, Any], version: int) -> dict[str, Any]:
            return {"rewards": arrays["sums"]}

    net, optimizer = trained(lambda net: HotSwapSGD(net, RATES, bandit=Moved()))
    state = optimizer.state_dict()
    state["param_groups"][0]["hotswap"]["bandit_version"] = 1
    before = everything(net, optimizer)
    with pytest.raises(CheckpointError, match=r"Moved cannot read its state \(KeyError: 'sums'\)"):
        optimizer.load_state_dict(state)
    assert everything(net, optimizer) == before


def test_hooks_of_all_optimizers_do_not_hear_of_the_steps_with_tiny_tensors() -> None:
    net, optimizer = trained(BUILDS["groups of AdamW"])
    seen: list[str] = []
    hook = register_optimizer_step_pre_hook(lambda *_: seen.append("step"))
    try:
        optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
        assert seen == []
        train(net, optimizer, batches(1))
        assert seen
    finally:
        hook.remove()
