"""Parameters in bfloat16 and float16: what is kept of them is in float32, and does what float32 does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

import hotswap
from hotswap import HotSwap, HotSwapSGD
from hotswap.optim.probing.moves.scaled import LINEAR_BASES
from tests.optim.helpers import batches, loss_of, masters_of, model, same, take, through_a_file, train, weights

HALVES = [torch.bfloat16, torch.float16]


Build = Callable[[Any], HotSwap]


def kept(optimizer: HotSwap) -> Tensor:
    """The float32 value of the first parameter."""
    return masters_of(optimizer)[0]


def floats(optimizer: HotSwap) -> list[Tensor]:
    """All that a step depends on and that torch would round: the values, and the base's state."""
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return [*masters_of(optimizer), *states]


def slope(parameter: nn.Parameter, gradient: float) -> Callable[[], Tensor]:
    """A loss whose gradient in `.grad` is rounded to the parameter's type, and to nothing else."""
    return lambda: 1.0 + (parameter.float() * gradient).sum()


def half(build: Build, dtype: torch.dtype = torch.bfloat16, *, seed: int = 0) -> tuple[nn.Module, HotSwap]:
    net = model(seed, dtype)
    return net, build(net.parameters())


def half_batches(count: int, dtype: torch.dtype = torch.bfloat16) -> list[tuple[Tensor, Tensor]]:
    return [(x.to(dtype), y) for x, y in batches(count)]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("base", sorted(LINEAR_BASES, key=lambda base: base.__name__), ids=lambda base: base.__name__)
def test_every_linear_base_does_what_it_does_in_float32(
    base: type[Optimizer], dtype: torch.dtype, decay: float
) -> None:
    """With a gradient whose square, like Adam's eps, is zero in float16."""
    found = []
    for kind in (torch.float32, dtype):
        parameter = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=kind))
        optimizer = HotSwap(base([parameter], lr=1.0, weight_decay=decay), {"lr": [1e-3]}, linear=True)  # type: ignore[call-arg]
        for _ in range(5):
            take(optimizer, slope(parameter, 2.0**-15))
        found.append(parameter.detach() if kind is torch.float32 else kept(optimizer))
        assert all(torch.is_tensor(value) and value.dtype is torch.float32 for value in floats(optimizer))
    assert not torch.equal(found[0], torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_base_with_a_past_in_half_precision_goes_on_in_float32(dtype: torch.dtype) -> None:
    """It may have stepped before, or somebody may have loaded into it: torch keeps state in the parameter's type."""
    for make in (
        lambda p: torch.optim.Adam(p, lr=1.0),
        lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    ):
        parameter = nn.Parameter(torch.ones(3, dtype=dtype))
        base = make([parameter])
        parameter.grad = torch.ones_like(parameter)
        base.step()
        optimizer = HotSwap(base, {"lr": [1e-4]})
        take(optimizer, slope(parameter, 1.0))
        base.load_state_dict(copy.deepcopy(base.state_dict()))
        take(optimizer, slope(parameter, 1.0))
        assert all(value.dtype is torch.float32 for value in floats(optimizer))


@pytest.mark.filterwarnings("ignore:step\\(\\) was called without a closure")
@pytest.mark.parametrize("dtype", HALVES)
def test_a_step_without_a_search_does_not_vanish_in_rounding(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer = HotSwap(torch.optim.AdamW([parameter], lr=1.0, weight_decay=0.1), {"lr": [1e-5]})
    take(optimizer, slope(parameter, 1.0))
    for _ in range(999):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    assert kept(optimizer).mean().item() == pytest.approx(0.989, abs=2e-4)
    assert torch.equal(kept(optimizer).to(dtype), parameter)
    assert list(optimizer.state) == [parameter]


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "decay": {"momentum": 0.9, "weight_decay": 1e-8},
    "norm": {"clip_norm": 1e-9, "lr": [1e8]},  # torch adds 1e-6 to the norm
    "value": {"clip_value": 1e-9},
}


@pytest.mark.parametrize("setting", [*SETTINGS, "adam", "adam, clipped"])
def test_what_the_loss_scale_saved_is_not_lost_when_it_is_taken_off(setting: str) -> None:
    """The gradient is 2e-9, and the smallest number of float16 6e-8."""
    found = []
    for dtype, scale in ((torch.float32, None), (torch.float16, 65536.0)):
        parameter = nn.Parameter(torch.tensor([1.0, 2.0], dtype=dtype))
        beside = nn.Parameter(torch.ones(1))  # clipped together, each in its own type
        if setting in SETTINGS:
            optimizer: HotSwap = HotSwapSGD([parameter, beside], **{"lr": [1e5], **SETTINGS[setting]}, loss_scale=scale)
        else:
            base = torch.optim.Adam([parameter, beside], lr=1.0, weight_decay=1e-9)
            clip = 1e-9 if setting == "adam, clipped" else None
            optimizer = HotSwap(base, {"lr": [0.1]}, clip_norm=clip, loss_scale=scale)

        def closure(parameter: nn.Parameter = parameter, beside: nn.Parameter = beside) -> Tensor:
            return slope(parameter, 2.0**-29)() + beside.sum() * 2.0**-29

        for _ in range(5):
            take(optimizer, closure)
        found.append((parameter.detach() if scale is None else kept(optimizer), beside.detach()))
    assert (found[0][0] < torch.tensor([1.0, 2.0]) - 1e-4).all()
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=0)


def test_nor_where_the_gradient_is_sparse() -> None:
    embed = nn.Embedding(5, 2, sparse=True, dtype=torch.float16)
    embed.weight.data.fill_(1.0)
    optimizer = HotSwapSGD(embed.parameters(), [1e7], loss_scale=65536.0)
    rows = torch.tensor([1, 3, 3])
    take(optimizer, lambda: 1.0 + (embed(rows).float() * 2.0**-29).sum())
    moved = 1 - 1e7 * 2.0**-29 * torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0])
    torch.testing.assert_close(kept(optimizer), moved[:, None].expand(5, 2), rtol=1e-6, atol=0)
    assert embed.weight.grad.is_sparse  # type: ignore[union-attr]


def test_the_gradient_that_is_left_is_without_the_scale_and_clipped() -> None:
    parameter = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = HotSwapSGD([parameter], [0.1], clip_norm=1.0, loss_scale=1024.0)
    take(optimizer, slope(parameter, 8.0))
    torch.testing.assert_close(parameter.grad, torch.full((4,), 0.5, dtype=torch.float16))


BUILDS: dict[str, Build] = {
    "sgd": HotSwapSGD,
    "momentum": lambda parameters: HotSwapSGD(parameters, momentum=0.9),
    "adam": lambda parameters: HotSwap(torch.optim.Adam(parameters)),
    "scaled": lambda parameters: HotSwapSGD(parameters, momentum=0.9, clip_norm=1.0, loss_scale=1024.0),
}


def loaded_from_a_file(pair: tuple[nn.Module, HotSwap], build: Build, dtype: torch.dtype) -> tuple[nn.Module, HotSwap]:
    made = half(build, dtype, seed=3)
    train(*made, half_batches(2, dtype))  # it has a past of its own, which must not matter
    for part, old in zip(made, pair, strict=True):
        part.load_state_dict(through_a_file(old.state_dict()))
    return made


COPIES: dict[str, Callable[..., tuple[nn.Module, HotSwap]]] = {
    "file": loaded_from_a_file,
    "deep": lambda pair, *_: copy.deepcopy(pair),
    "pickle": lambda pair, *_: pickle.loads(pickle.dumps(pair)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("build", BUILDS)
def test_resumes_with_all_digits_of_float32(build: str, way: str, dtype: torch.dtype) -> None:
    data = half_batches(30, dtype)
    pair = half(BUILDS[build], dtype)
    train(*pair, data[:15])
    again = COPIES[way](pair, BUILDS[build], dtype)
    assert same(floats(again[1]), floats(pair[1]))
    for net, optimizer in (pair, again):
        train(net, optimizer, data[15:])
    assert same(floats(again[1]), floats(pair[1]))
    assert same(weights(again[0]), weights(pair[0]))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process is enough here
@pytest.mark.parametrize("build", BUILDS)
def test_a_distributed_checkpoint_keeps_all_digits_of_float32(build: str, tmp_path: Path) -> None:
    """It loads into tensors that a fresh optimizer has to have."""
    data = half_batches(30)
    pair = half(BUILDS[build])
    train(*pair, data[:15])
    names = ("model", "optimizer")
    dcp.save(dict(zip(names, get_state_dict(*pair), strict=True)), checkpoint_id=str(tmp_path))
    again = half(BUILDS[build], seed=3)
    loaded = dict(zip(names, get_state_dict(*again), strict=True))
    dcp.load(loaded, checkpoint_id=str(tmp_path))
    set_state_dict(*again, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    assert same(floats(again[1]), floats(pair[1]))
    for net, optimizer in (pair, again):
        train(net, optimizer, data[15:])
    assert same(weights(again[0]), weights(pair[0]))


def test_a_state_with_less_in_it_loads() -> None:
    """As it once was: values only of parameters that have moved, and momentum in the parameter's type."""
    net, optimizer = half(BUILDS["momentum"])
    train(net, optimizer, half_batches(15))
    state = copy.deepcopy(optimizer.state_dict())
    del state["param_groups"][0]["hotswap"]["masters"]["3"]
    for own in state["state"].values():
        own["momentum_buffer"] = own["momentum_buffer"].bfloat16()
    again = BUILDS["momentum"](net.parameters())
    again.load_state_dict(state)
    assert same(masters_of(again)[:3], floats(optimizer)[:3])
    assert torch.equal(floats(again)[3], net[2].bias.float())  # type: ignore[index,union-attr]
    train(net, again, half_batches(2))
    assert all(value.dtype is torch.float32 for value in floats(again))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("base", ["sgd", "momentum", "adam"])
def test_small_steps_do_not_vanish_in_rounding(dtype: torch.dtype, base: str) -> None:
    """At 1, the next bfloat16 below is 2⁻⁸ away: a thousand steps of 1e-5 must still get somewhere."""
    parameter = nn.Parameter(torch.ones(4, dtype=dtype))
    rates = [1e-5]
    if base == "adam":
        optimizer: HotSwap = HotSwap(torch.optim.Adam([parameter], lr=1.0), {"lr": rates})
    else:
        optimizer = HotSwapSGD([parameter], rates, momentum=0.5 if base == "momentum" else 0.0)
    for _ in range(1000):
        take(optimizer, lambda: parameter.float().sum())
    assert parameter.dtype == dtype
    assert (parameter < 0.995).all()
    expected = {"sgd": 0.99, "momentum": 0.98, "adam": 0.99}[base]
    assert parameter.float().mean().item() == pytest.approx(expected, abs=4e-3)


def test_parameters_in_bfloat16_train_and_come_back_bit_for_bit() -> None:
    net = model(dtype=torch.bfloat16)
    optimizer = HotSwapSGD(net.parameters())
    data = [(x.bfloat16(), y) for x, y in batches(60)]
    first = sum(loss_of(net, batch)().item() for batch in data)
    for batch in data * 3:
        optimizer.step(loss_of(net, batch))
    assert sum(loss_of(net, batch)().item() for batch in data) < 0.7 * first
    bad = HotSwapSGD(net.parameters(), lr=[1e30, 1e20])
    before = weights(net)
    bad.step(loss_of(net, data[0]))
    assert bad.last_step is not None
    assert bad.last_step.arm is None
    assert same(before, weights(net))


def test_what_is_kept_in_float32_is_saved_and_follows_changes_by_others(tmp_path: Any) -> None:
    net = model(dtype=torch.bfloat16)
    data = [(x.bfloat16(), y) for x, y in batches(40)]
    optimizer = HotSwapSGD(net.parameters(), momentum=0.5)
    for batch in data[:20]:
        optimizer.step(loss_of(net, batch))
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    other = model(seed=1, dtype=torch.bfloat16)
    resumed = HotSwapSGD(other.parameters(), momentum=0.5)
    loaded = torch.load(tmp_path / "c.pt", weights_only=True)
    resumed.load_state_dict(loaded["optimizer"])  # before the weights: the order must not matter
    other.load_state_dict(loaded["net"])
    copied = copy.deepcopy((net, optimizer))
    for batch in data[20:]:
        for this, its in ((net, optimizer), (other, resumed), copied):
            its.step(loss_of(this, batch))
    assert same(weights(net), weights(other))
    assert same(weights(net), weights(copied[0]))
    with torch.no_grad():
        net[0].weight.data.fill_(0.5)
    HotSwapSGD.step(optimizer, loss_of(net, data[0]))
    assert (net[0].weight - 0.5).abs().max() < 0.4  # from there, not from what was kept


@pytest.mark.parametrize("nesterov", [False, True])
def test_half_precision_does_what_float32_does(nesterov: bool) -> None:
    """Momentum and weight decay read the θ from before the step, also where a float32 copy of it is kept."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        parameter = nn.Parameter(torch.full((3,), 2.0, dtype=dtype))
        base = torch.optim.SGD([parameter], lr=1.0, momentum=0.5, weight_decay=0.5, nesterov=nesterov)
        optimizer = HotSwap(base, {"lr": [0.5]})
        for _ in range(3):
            take(optimizer, lambda parameter=parameter: parameter.float().sum() + 100)
        found.append((parameter.detach().float(), base.state[parameter]["momentum_buffer"].float()))
    torch.testing.assert_close(found[0], found[1], rtol=2e-2, atol=2e-2)


def test_exact_moves_refuse_parameters_that_would_round_their_steps_away() -> None:
    net = model(dtype=torch.bfloat16)
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [1.0, 0.1], "momentum": [0.0, 0.9]})
    (x, y), *_ = batches(1)
    with pytest.raises(hotswap.UnsupportedError, match="vanish in rounding; keep the parameters in float32"):
        optimizer.step(loss_of(net, (x.bfloat16(), y)))


@pytest.mark.parametrize("inside", [True, False], ids=["in the closure", "around the step"])
def test_autocast_in_bfloat16(inside: bool) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    for x, y in batches(30):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=inside):
                return cross_entropy(net(x).float(), y)

        with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
            optimizer.step(closure)
    assert optimizer.last_step is not None
    assert optimizer.last_step.loss_after < 1.0
    assert {p.dtype for p in net.parameters()} == {torch.float32}
