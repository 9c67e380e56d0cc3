"""HotSwap around other optimizers: one base step per step, and candidates that are exactly the base's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import Backtracking, HotSwap, HotSwapSGD, SettingError, UnsupportedError, log_grid
from hotswap.optim.moves import LINEAR_BASES, Exact, GradientMove, LinearMove
from tests.optim.helpers import batches, loss_of, model, move_of, same, take, train, weights

Build = Callable[[Any], torch.optim.Optimizer]


D = torch.float64


BASES: dict[str, Build] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.7),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "sgd nesterov": lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.8, nesterov=True, weight_decay=0.01),
    "sgd nesterov foreach": lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.8, nesterov=True, foreach=True),
    "sgd nesterov fused": lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.8, nesterov=True, fused=True),
    "sgd decay": lambda p: torch.optim.SGD(p, lr=0.7, weight_decay=0.1),
    "adam": torch.optim.Adam,
    "adam decay": lambda p: torch.optim.Adam(p, weight_decay=0.1, amsgrad=True),
    "adam foreach": lambda p: torch.optim.Adam(p, foreach=True, weight_decay=0.1),
    "adam fused": lambda p: torch.optim.Adam(p, fused=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, weight_decay=0.2),
    "nadam": lambda p: torch.optim.NAdam(p, weight_decay=0.1),
    "nadam decoupled": lambda p: torch.optim.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: torch.optim.RAdam(p, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True, weight_decay=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr_decay=0.1, weight_decay=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, weight_decay=0.1),
}


FEW = {"lr": log_grid(1.0, 1e-4, 9)}


def run(build: Build, steps: int, net: nn.Module, forced: type | None = None) -> tuple[HotSwap, list[Any]]:
    optimizer = HotSwap(build(list(net.parameters())), FEW, linear=False if forced is Exact else None)
    records = []
    for batch in batches(steps, dtype=D):
        optimizer.step(loss_of(net, batch))
        records.append(optimizer.last_step)
    return optimizer, records


def test_every_linear_base_is_tested() -> None:
    tested = {type(build([nn.Parameter(torch.zeros(2, 2))])) for build in BASES.values()}
    assert tested | {torch.optim.Muon} == LINEAR_BASES


@pytest.mark.parametrize("name", BASES)
def test_scaling_one_displacement_is_the_same_as_repeating_the_step(name: str) -> None:
    fast, slow = model(dtype=D), model(dtype=D)
    quick, records = run(BASES[name], 60, fast)
    assert type(move_of(quick)) in (GradientMove, LinearMove)
    _, expected = run(BASES[name], 60, slow, forced=Exact)
    assert [r.trials for r in records] == [
        tuple((arm, pytest.approx(loss, abs=1e-10)) for arm, loss in r.trials) for r in expected
    ]
    assert sum(r.arm is not None for r in records) > 30
    for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_muon() -> None:
    def build(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Muon([p for p in parameters if p.ndim == 2], weight_decay=0.1)

    fast, slow = model(), model()
    quick = HotSwap(build(list(fast.parameters())), FEW)
    exact = HotSwap(build(list(slow.parameters())), FEW, linear=False)
    assert type(move_of(quick)) is LinearMove
    assert type(move_of(exact)) is Exact
    for batch in batches(5):
        quick.step(loss_of(fast, batch))
        exact.step(loss_of(slow, batch))
    for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)  # Newton-Schulz runs in bfloat16


@pytest.mark.parametrize("linear", [None, False], ids=["fast", "exact"])
@pytest.mark.parametrize("name", BASES)
def test_the_base_state_advances_exactly_once_per_step(name: str, linear: bool | None) -> None:
    """Its state after n steps is that of a plain base which saw the same gradients, moves or no moves."""
    net, twin = model(dtype=D), model(dtype=D)
    hot = HotSwap(BASES[name](list(net.parameters())), {"lr": [50.0, 1e-3]}, linear=linear)
    plain = BASES[name](list(twin.parameters()))
    for batch in batches(25, dtype=D):
        at_start = weights(net)
        hot.step(loss_of(net, batch))
        for parameter, other, value in zip(net.parameters(), twin.parameters(), at_start, strict=True):
            other.data.copy_(value)
            other.grad = parameter.grad.clone()
        plain.step()
    for parameter, other in zip(net.parameters(), twin.parameters(), strict=True):
        ours, theirs = hot.state[parameter], plain.state[other]
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-9, atol=1e-12)


def test_the_base_state_advances_when_nothing_moves() -> None:
    net = model()
    before = weights(net)
    optimizer = HotSwap(torch.optim.Adam(net.parameters()), {"lr": [1e6, 1e5]})
    for batch in batches(3):
        optimizer.step(loss_of(net, batch))
        assert optimizer.last_step.arm is None
        assert optimizer.last_step.values == {"lr": 0.0}
    assert same(weights(net), before)
    assert {int(state["step"]) for state in optimizer.state.values()} == {3}


def test_small_displacements_keep_their_digits() -> None:
    """θ = 1, a step of 1e-14 at a rate of 1: the difference of two float32 θ would have lost all of it."""
    parameter = nn.Parameter(torch.ones(4))
    optimizer = HotSwap(torch.optim.Adagrad([parameter], eps=1e6), {"lr": [5e13]})
    take(optimizer, lambda: (1e-8 * parameter).sum() + 1.0)
    torch.testing.assert_close(parameter.data, torch.full((4,), 0.5), rtol=1e-5, atol=0.0)


class Halving(torch.optim.Optimizer):
    """Moves by the square root of its rate and counts its steps in its group: as unlike SGD as can be."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "count": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"] ** 0.5)
                self.state[p]["seen"] = self.state[p].get("seen", 0) + 1


def test_an_unknown_base_takes_the_exact_path() -> None:
    net = model()
    optimizer = HotSwap(Halving(net.parameters()))
    assert type(move_of(optimizer)) is Exact
    train(net, optimizer, batches(60))
    assert optimizer.param_groups[0]["count"] == 60
    assert {state["seen"] for state in optimizer.state.values()} == {60}
    assert loss_of(net, batches(1)[0])().item() < 0.9


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.Rprop, torch.optim.ASGD])
def test_refuses_bases_that_cannot_be_searched(kind: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"HotSwap cannot wrap {kind.__name__}: "):
        HotSwap(kind(model().parameters()))


def test_sgd_is_hotswap_around_torchs_sgd() -> None:
    ours, theirs = model(), model()
    a = HotSwapSGD(ours.parameters(), momentum=0.9, weight_decay=1e-3, search=Backtracking(headroom=1))
    b = HotSwap(
        torch.optim.SGD(theirs.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-3), search=Backtracking(headroom=1)
    )
    for batch in batches(60):
        a.step(loss_of(ours, batch))
        b.step(loss_of(theirs, batch))
        assert a.last_step == b.last_step
    assert same(weights(ours), weights(theirs))


def test_a_hot_swapped_base_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="HotSwap cannot wrap another HotSwap"):
        HotSwap(HotSwapSGD(model().parameters()))


class NoRate(torch.optim.Optimizer):
    """Has a size, and no lr."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"size": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad.sign(), alpha=group["size"])


def test_a_base_without_a_rate() -> None:
    net = model()
    optimizer = HotSwap(NoRate(net.parameters()), {"size": [0.1, 0.01]})
    train(net, optimizer, batches(40))
    assert loss_of(net, batches(1)[0])().item() < 0.9
    assert optimizer.param_groups[0]["size"] == 0.1


def test_a_walk_stays_with_its_setting() -> None:
    """Arms over lr and momentum: a trial list never crosses from one momentum to the other."""
    net = model()
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [1e6, 1e5, 1e4], "momentum": [0.9, 0.0]})
    for batch in batches(12):
        optimizer.step(loss_of(net, batch))
        record = optimizer.last_step
        assert len({optimizer.arms.values(arm)["momentum"] for arm, _ in record.trials}) == 1


def test_a_given_base_must_be_an_optimizer() -> None:
    with pytest.raises(SettingError, match=r"not a torch\.optim\.Optimizer; for plain parameters use HotSwapSGD"):
        HotSwap(model().parameters())  # type: ignore[arg-type]


class Words(nn.Module):
    """An embedding whose gradient may be sparse."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 6, sparse=sparse)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens).mean(1))


def sentences() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 50, (20, 4), generator=generator)
    return tokens, tokens[:, 0] % 3


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of Adagrad's own doing
@pytest.mark.parametrize("base", ["sgd", "adagrad"])
def test_sparse_gradients_are_dense_ones(base: str) -> None:
    tokens, labels = sentences()
    nets = [Words(sparse=sparse).double() for sparse in (True, False)]
    makers = {"sgd": HotSwapSGD, "adagrad": lambda p: HotSwap(torch.optim.Adagrad(p, lr=1.0))}
    optimizers = [makers[base](net.parameters()) for net in nets]
    for _ in range(40):
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.step(lambda net=net: cross_entropy(net(tokens), labels))
    assert nets[0].embed.weight.grad.layout is torch.sparse_coo
    for ours, theirs in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_adam() -> None:
    tokens, labels = sentences()
    net = Words(sparse=True)
    optimizer = HotSwap(torch.optim.SparseAdam(net.embed.parameters(), lr=1.0), {"lr": [0.3, 0.03]})
    first = cross_entropy(net(tokens), labels).item()
    for _ in range(30):
        optimizer.step(lambda: cross_entropy(net(tokens), labels))
    assert cross_entropy(net(tokens), labels).item() < 0.8 * first


@pytest.mark.parametrize("setting", [{"weight_decay": 0.1}, {"momentum": 0.9}, {"clip_norm": 1.0}])
def test_what_a_sparse_gradient_cannot_have_is_refused(setting: dict[str, float]) -> None:
    tokens, labels = sentences()
    net = Words(sparse=True)
    before = weights(net)
    optimizer = HotSwapSGD(net.parameters(), **setting)  # type: ignore[arg-type]
    with pytest.raises(hotswap.UnsupportedError, match="sparse gradient cannot"):
        optimizer.step(lambda: cross_entropy(net(tokens), labels))
    assert same(before, weights(net))


def test_frozen_unused_shared_and_late_parameters() -> None:
    torch.manual_seed(0)
    embed, unused = nn.Embedding(50, 6), nn.Linear(2, 2)
    frozen = nn.Linear(6, 6)
    frozen.requires_grad_(False)
    out = nn.Linear(6, 50, bias=False)
    out.weight = embed.weight  # tied
    net = nn.ModuleList([embed, frozen, out, unused])
    optimizer = HotSwapSGD(net.parameters(), momentum=0.9)
    tokens, _ = sentences()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}

    def closure() -> Tensor:
        return cross_entropy(out(frozen(embed(tokens[:, 0]))), tokens[:, 1])

    losses = [optimizer.step(closure).item() for _ in range(40)]
    assert losses[-1] < losses[0]
    assert out.weight is embed.weight
    for name, parameter in net.named_parameters():
        assert torch.equal(parameter, before[name]) == (not name.startswith("0."))
    late = nn.Linear(50, 50)
    optimizer.add_param_group({"params": list(late.parameters()), "lr": 0.5})
    start = weights(late)
    optimizer.step(lambda: cross_entropy(late(out(frozen(embed(tokens[:, 0])))), tokens[:, 1]))
    assert not same(start, weights(late))
