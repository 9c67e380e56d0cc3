"""What real training loops bring: reduced precision, accumulation, clipping, parameters of all kinds, schedulers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler

import hotswap
from hotswap import HotSwap, HotSwapSGD, accumulate
from hotswap.optim import gradients
from tests.optim.helpers import batches, loss_of, model, same, weights


def applied(optimizer: HotSwap) -> float:
    assert optimizer.last_step is not None
    return float(optimizer.last_step.values["lr"])  # type: ignore[arg-type]


def take(optimizer: HotSwap, closure: Callable[[], Tensor]) -> None:
    """A step with a judge that finds whatever is tried better than what was before, so that it is taken."""
    optimizer._known.add("another loss")
    optimizer.step(closure, trial_closure=lambda: torch.tensor(0.5), loss=1.0)


# --- reduced precision ------------------------------------------------------------------------------------------------


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


def test_a_loss_scale_saves_gradients_that_float16_would_lose() -> None:
    """A gradient of 1e-9 is zero in float16, but not when the loss was multiplied by 65536 before."""
    for scale, moves in ((None, False), (65536.0, True)):
        parameter = nn.Parameter(torch.ones(3))
        optimizer = HotSwapSGD([parameter], lr=[100.0], loss_scale=scale)

        def closure(parameter: nn.Parameter = parameter) -> Tensor:
            return 1.0 + (parameter.half() * 1.0).float().sum() * 1e-9 * 10

        take(optimizer, closure)
        assert (parameter != 1).all() == moves


def test_a_gradient_that_overflows_is_left_out_and_the_scale_shrinks() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = HotSwapSGD([parameter], momentum=0.9, loss_scale=65536.0)
    optimizer.step(lambda: (parameter.half() * 100).float().sum())
    assert optimizer.last_step is not None
    assert optimizer.last_step.arm is None
    assert optimizer.last_step.trials == ()
    assert (parameter == 1).all()
    assert not optimizer.state
    saved = optimizer.state_dict()
    again = HotSwapSGD([parameter], momentum=0.9, loss_scale=65536.0)
    again.load_state_dict(saved)
    for _ in range(20):
        again.step(lambda: (parameter.half() * 100).float().square().sum())
        if again.last_step is not None and again.last_step.arm is not None:
            break
    else:
        pytest.fail("the scale never became small enough")


def test_the_loss_scale_doubles_after_enough_good_steps_also_across_a_checkpoint() -> None:
    parameter = nn.Parameter(torch.ones(3))

    def build() -> HotSwap:
        optimizer = HotSwapSGD([parameter], lr=[0.1], loss_scale=8.0)
        assert optimizer._loss_scale is not None
        assert optimizer._loss_scale.patience == 2000
        optimizer._loss_scale.patience = 3
        return optimizer

    def scale(optimizer: HotSwap) -> tuple[float, int]:
        assert optimizer._loss_scale is not None
        return optimizer._loss_scale.value, optimizer._loss_scale.good

    optimizer, seen = build(), []
    for _ in range(5):
        take(optimizer, lambda: parameter.square().sum())
        seen.append(scale(optimizer))
    assert seen == [(8.0, 1), (8.0, 2), (16.0, 0), (16.0, 1), (16.0, 2)]
    again = build()
    again.load_state_dict(optimizer.state_dict())
    assert scale(again) == (16.0, 2)
    take(again, lambda: parameter.square().sum())
    assert scale(again) == (32.0, 0)
    take(again, lambda: parameter.square().sum())
    take(again, lambda: parameter.sum() * 1e38)  # times the scale, it overflows
    assert scale(again) == (16.0, 0)
    take(again, lambda: parameter.square().sum())
    assert scale(again) == (16.0, 1)
    copied = copy.deepcopy(again)
    assert scale(copied) == (16.0, 1)


def test_a_loss_scale_needs_the_backward() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters(), loss_scale=1024.0)

    def closure() -> Tensor:
        loss = loss_of(net, batches(1)[0])()
        loss.backward()
        return loss

    with pytest.raises(hotswap.ClosureError, match="With loss_scale the optimizer has to run the backward pass"):
        optimizer.step(closure)
    with pytest.raises(hotswap.SettingError, match=r"loss_scale=0\.5"):
        HotSwapSGD(net.parameters(), loss_scale=0.5)


# --- accumulation and clipping ----------------------------------------------------------------------------------------


def test_several_small_minibatches_are_one_large_one() -> None:
    x, y = (torch.cat(parts) for parts in zip(*batches(3, dtype=torch.float64), strict=True))
    cuts = [slice(0, 7), slice(7, 30), slice(30, 48)]  # of different sizes
    one, other = model(dtype=torch.float64), model(dtype=torch.float64)
    whole, parts = HotSwapSGD(one.parameters(), momentum=0.5), HotSwapSGD(other.parameters(), momentum=0.5)
    for _ in range(30):
        a = whole.step(loss_of(one, (x, y)))
        b = parts.step(
            accumulate(lambda batch: cross_entropy(other(batch[0]), batch[1]), [(x[cut], y[cut]) for cut in cuts])
        )
        assert a.item() == pytest.approx(b.item(), rel=1e-12)
        assert whole.last_step is not None
        assert parts.last_step is not None
        assert whole.last_step.arm == parts.last_step.arm
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_accumulation_needs_the_memory_of_one_minibatch() -> None:
    """No graph of an earlier minibatch is alive when the next one is evaluated."""
    net, alive, most = model(), 0, 0

    class Held(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            nonlocal alive
            alive -= 1
            return gradient

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        scores = net(batch[0])
        return cross_entropy(Held.apply(scores) if torch.is_grad_enabled() else scores, batch[1])

    HotSwapSGD(net.parameters()).step(accumulate(loss, batches(5)))
    assert most == 1


def test_accumulation_with_weights_and_without_minibatches() -> None:
    net = model()
    first, second = batches(2)
    closure = accumulate(lambda batch: loss_of(net, batch)(), [first, second], weights=[1.0, 3.0])
    expected = loss_of(net, first)() + 3 * loss_of(net, second)()
    assert closure().item() == pytest.approx(expected.item())
    with pytest.raises(hotswap.ClosureError, match="there are no minibatches"):
        accumulate(lambda batch: batch, [])
    with pytest.raises(hotswap.ClosureError, match="1 weights for 2 minibatches"):
        accumulate(lambda batch: batch, [first, second], weights=[1.0])
    with pytest.raises(hotswap.SettingError, match="a Sequential exchanges no gradients"):
        accumulate(lambda batch: batch, [first], module=net)


@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_the_search_walks_along_the_clipped_direction(base: str) -> None:
    def build(**clip: float) -> tuple[nn.Parameter, HotSwap]:
        parameter = nn.Parameter(torch.tensor([3.0, -4.0], dtype=torch.float64))
        if base == "sgd":
            return parameter, HotSwapSGD([parameter], lr=[0.1], **clip)
        return parameter, HotSwap(torch.optim.Adam([parameter], lr=1.0, eps=1.0), {"lr": [0.1]}, **clip)

    for clip, direction in (({"clip_norm": 1.0}, [0.6, -0.8]), ({"clip_value": 2.0}, [2.0, -2.0]), ({}, [6.0, -8.0])):
        parameter, optimizer = build(**clip)
        optimizer.step(lambda parameter=parameter: parameter.square().sum())
        moved = torch.tensor([3.0, -4.0], dtype=torch.float64) - parameter.detach()
        wanted = torch.tensor(direction, dtype=torch.float64)
        if base == "adam":
            wanted = wanted / (wanted.abs() + 1.0)
        torch.testing.assert_close(moved, 0.1 * wanted, rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(parameter.grad, torch.tensor(direction, dtype=torch.float64), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_a_gradient_is_clipped_once_however_many_trials_there_are(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = gradients.clip_grad_norm_

    def counting(*args: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return real(*args)

    monkeypatch.setattr(gradients, "clip_grad_norm_", counting)
    parameter = nn.Parameter(torch.tensor([3.0, -4.0]))
    bases = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "exact": torch.optim.Adafactor}
    optimizer = HotSwap(bases[base]([parameter], lr=1.0), {"lr": [10.0**-k for k in range(-4, 3)]}, clip_norm=1.0)
    trials = 0
    for step in range(1, 10):
        optimizer.step(lambda: parameter.square().sum())
        assert optimizer.last_step is not None
        trials += len(optimizer.last_step.trials)
        assert calls == step
    assert trials > 9
    assert parameter.grad is not None
    assert parameter.grad.norm().item() <= 1.0001


@pytest.mark.parametrize(
    ("clip", "says"),
    [
        ({"clip_norm": 0.0}, r"clip_norm=0\.0"),
        ({"clip_value": float("nan")}, "clip_value=nan"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "choose one of them"),
    ],
)
def test_limits_that_cannot_be_meant(clip: dict[str, float], says: str) -> None:
    with pytest.raises(hotswap.SettingError, match=says):
        HotSwapSGD(model().parameters(), **clip)


def test_a_step_without_a_search_is_clipped_too() -> None:
    parameter = nn.Parameter(torch.tensor([4.0]))
    optimizer = HotSwapSGD([parameter], lr=[1.0], clip_norm=1.0)
    parameter.grad = torch.tensor([100.0])
    with pytest.warns(hotswap.HotSwapWarning, match="without a closure"):
        optimizer.step()
    assert parameter.item() == pytest.approx(3.0, abs=1e-4)


def test_a_loss_scale_does_not_go_with_gradients_of_ones_own() -> None:
    parameter = nn.Parameter(torch.tensor([4.0]))
    optimizer = HotSwapSGD([parameter], loss_scale=8.0)
    parameter.grad = torch.tensor([1.0])
    with pytest.raises(hotswap.ClosureError, match="brings gradients of its own"):
        optimizer.step(trial_closure=lambda: parameter.square().sum(), loss=16.0)


def test_a_gradient_that_is_not_a_number_never_reaches_the_weights() -> None:
    """The loss is finite, and so are the trials' losses: only the gradient tells."""
    parameter = nn.Parameter(torch.tensor([0.0, 4.0]))
    optimizer = HotSwapSGD([parameter], lr=[0.1, 0.01])
    with pytest.raises(hotswap.ClosureError, match="its gradient is not"):
        optimizer.step(lambda: torch.where(parameter > 0, parameter.sqrt(), torch.zeros(())).sum())
    assert parameter.tolist() == [0.0, 4.0]


def test_nor_the_momentum_where_a_scheduler_stands_at_zero() -> None:
    parameter = nn.Parameter(torch.tensor([0.0, 4.0]))
    optimizer = HotSwapSGD([parameter], lr=[0.1], momentum=0.9)
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(hotswap.ClosureError, match="its gradient is not"):
        optimizer.step(lambda: torch.where(parameter > 0, parameter.sqrt(), torch.zeros(())).sum())
    assert not optimizer.state


# --- parameters of all kinds ------------------------------------------------------------------------------------------


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


# --- schedulers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "factors"),
    [
        (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch), [1, 0.5, 0.25, 0.125, 0.0625]),
        (lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=3), [0.25, 0.5, 0.75, 1, 1]),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 4), [1, 0.853553, 0.5, 0.146447, 0]),
        (lambda o: lr_scheduler.MultiplicativeLR(o, lambda _: 0.9), [1, 0.9, 0.81, 0.729, 0.6561]),
        (
            lambda o: lr_scheduler.ChainedScheduler(
                [lr_scheduler.ConstantLR(o, 0.5, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)]
            ),
            [0.5, 0.25, 0.25, 0.125, 0.0625],
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o, 0.5, 1.0, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 2)], [2]
            ),
            [0.5, 0.75, 1, 0.5, 0],
        ),
        (
            lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=6, anneal_strategy="linear", cycle_momentum=False),
            None,
        ),
    ],
    ids=["lambda", "warm-up", "cosine", "multiplicative", "chained", "sequential", "one cycle"],
)
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_a_scheduler_scales_what_is_applied(make: Any, factors: list[float] | None, base: str) -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    if base == "sgd":
        optimizer: HotSwap = HotSwapSGD([parameter], lr=[0.01])
    else:
        optimizer = HotSwap(torch.optim.Adam([parameter], lr=1.0), {"lr": [0.01]})
    scheduler = make(optimizer)
    for number in range(5):
        own = optimizer.param_groups[0]["lr"]
        before = parameter.detach().clone()
        optimizer.step(lambda: parameter.square().sum())
        factor = own if factors is None else factors[number]
        assert own == pytest.approx(factor, abs=1e-6)  # the initial lr is 1
        assert applied(optimizer) == pytest.approx(0.01 * factor, abs=1e-8)
        if base == "sgd":
            torch.testing.assert_close(parameter.detach(), before * (1 - 0.02 * factor), rtol=1e-6, atol=1e-9)
        scheduler.step()
