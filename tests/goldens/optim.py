"""Goldens of the optimizers and of the oracle: `python -m tests.goldens.optim` writes `optim.json`.

Each set-up trains for 200 steps, in float64 and in float32, on one thread of a CPU. The file keeps the arms, the number
of trials, every tenth loss, rounded, and a digest of the weights. A digest is compared only where the processor rounds
as the one that wrote the file. Arms and losses in float64 are compared everywhere; in float32 for the first steps,
before differences of rounding have grown.

A change of behaviour changes this file, and the commit that writes it anew says why.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import hotswap
from hotswap.reference import Ducb, armijo, both_ways, hot_swap_ducb
from tests.problems import PROBLEMS

FILE = Path(__file__).with_suffix(".json")
STEPS, STEPS_OF_ORACLE = 200, 100
SPACING = 10
"""Steps from one loss that is kept to the next."""
Loop = Callable[[torch.dtype], Iterator[tuple[Any, nn.Module]]]
"""Trains a network; after each step it gives the optimizer and the network."""


class Dropout(nn.Module):
    """Dropout of numbers that every build of torch draws alike."""

    def __init__(self) -> None:
        super().__init__()
        self.p = 0.25

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(x.shape) >= self.p) / (1 - self.p)


def network(dtype: torch.dtype, *inner: nn.Module) -> nn.Sequential:
    """A small network whose weights NumPy draws."""
    net = nn.Sequential(nn.Linear(6, 8), *(inner or (nn.Tanh(),)), nn.Linear(8, 3)).to(dtype)
    numbers = np.random.RandomState(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.from_numpy(numbers.uniform(-0.5, 0.5, tuple(parameter.shape))))
    return net


def minibatches(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    numbers = np.random.RandomState(1)
    for _ in range(STEPS):
        x = numbers.uniform(-1, 1, (16, 6))
        noise = numbers.uniform(-0.2, 0.2, 16)
        y = (x[:, 0] + noise > 0).astype(np.int64) + (x[:, 1] * x[:, 2] + noise > 0.1)
        yield torch.from_numpy(x).to(dtype), torch.from_numpy(y)


def plain(make: Callable[[nn.Module], Any]) -> Loop:
    """The usual loop."""

    def loop(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
        net = network(dtype)
        optimizer = make(net)
        for x, y in minibatches(dtype):
            optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
            yield optimizer, net

    return loop


def grouped(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
    """Groups with rates and a decay of their own, clipping, and a scheduler."""
    net = network(dtype)
    groups = [{"params": net[0].parameters(), "weight_decay": 1e-3}, {"params": net[2].parameters(), "lr": 0.5}]
    optimizer = hotswap.HotSwapSGD(groups, momentum=0.5, clip_norm=0.5, module=net)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 100))
    for x, y in minibatches(dtype):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        schedule.step()
        yield optimizer, net


def accumulated(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
    """One closure of several minibatches, and a loss that goes below zero."""
    net = network(dtype)
    optimizer = hotswap.HotSwap(
        torch.optim.RMSprop(net.parameters(), weight_decay=1e-4),
        bandit=hotswap.SmoothedUCB(),
        reward=hotswap.RelativeReduction(),
        clip_value=0.1,
        module=net,
    )
    for x, y in minibatches(dtype):
        parts = [(x[:10], y[:10]), (x[10:], y[10:])]
        optimizer.step(hotswap.accumulate(lambda part: cross_entropy(net(part[0]), part[1]) - 1, parts))
        yield optimizer, net


def noisy(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
    """Batch norm, and dropout whose strength is swapped, too."""
    dropout = Dropout()
    net = network(dtype, nn.BatchNorm1d(8), nn.ReLU(), dropout)
    torch.manual_seed(0)
    optimizer = hotswap.HotSwap(
        torch.optim.SGD(net.parameters(), lr=1.0),
        {"lr": hotswap.log_grid(10, 1e-3, 9), "dropout": [0.0, 0.25, 0.5]},
        setters={"dropout": lambda p: setattr(dropout, "p", p)},
        module=net,
    )
    for x, y in minibatches(dtype):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        yield optimizer, net


def given(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
    """The user runs the backward, and trials are judged on the minibatch and the one before."""
    net, before = network(dtype), None
    optimizer = hotswap.HotSwap(
        torch.optim.AdamW(net.parameters()), bandit=hotswap.UCB1(), search=hotswap.Backtracking(headroom=1), module=net
    )
    for x, y in minibatches(dtype):
        optimizer.zero_grad()
        with optimizer.gradient_pass():
            loss = cross_entropy(net(x), y)
            loss.backward()
        judged = torch.cat([x, before[0]]) if before else x, torch.cat([y, before[1]]) if before else y
        start = cross_entropy(net(judged[0]), judged[1]).detach()
        optimizer.step(trial_closure=lambda of=judged: cross_entropy(net(of[0]), of[1]), loss=start)
        before = x, y
        yield optimizer, net


def resumed(dtype: torch.dtype) -> Iterator[tuple[Any, nn.Module]]:
    """Saved and loaded into new objects halfway; a regression with Nesterov's momentum."""

    def build(net: nn.Module) -> Any:
        base = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9, nesterov=True)
        return hotswap.HotSwap(base, bandit=hotswap.Exp3S(), search=hotswap.FirstDecrease(), module=net, seed=3)

    net = network(dtype)
    optimizer = build(net)
    for step, (x, y) in enumerate(minibatches(dtype)):
        if step == STEPS // 2:
            weights, state = net.state_dict(), optimizer.state_dict()
            net = network(dtype)
            optimizer = build(net)
            net.load_state_dict(weights)
            optimizer.load_state_dict(state)
        target = nn.functional.one_hot(y, 3).to(dtype)
        optimizer.step(lambda net=net, x=x, target=target: mse_loss(net(x), target))
        yield optimizer, net


def sgd(net: nn.Module, **settings: Any) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=1.0, **settings)


SETUPS: dict[str, Loop] = {
    "paper": plain(hotswap.HotSwapSGD),
    "momentum": plain(
        lambda net: hotswap.HotSwapSGD(
            net,
            momentum=0.9,
            weight_decay=1e-3,
            bandit=hotswap.EpsilonGreedy(),
            search=hotswap.Backtracking(when_stuck="smallest"),
            seed=1,
        )
    ),
    "adam": plain(
        lambda net: hotswap.HotSwap(
            torch.optim.Adam(net.parameters()), bandit=hotswap.ThompsonSampling(), search=hotswap.Armijo(), module=net
        )
    ),
    "preset": plain(hotswap.presets.adam),
    "several": plain(
        lambda net: hotswap.HotSwap(
            sgd(net),
            {"lr": hotswap.log_grid(10, 1e-4, 11), "momentum": [0.0, 0.5, 0.9]},
            bandit=hotswap.SlidingWindowUCB(),
            search=hotswap.BothWays(),
            module=net,
        )
    ),
    "factored": plain(
        lambda net: hotswap.HotSwap(
            torch.optim.Adagrad(net.parameters(), lr=1.0),
            {"lr": hotswap.log_grid(1, 1e-4, 9), "weight_decay": [0.0, 1e-4, 1e-2]},
            factored=True,
            module=net,
        )
    ),
    "seldom": plain(
        lambda net: hotswap.HotSwap(
            torch.optim.Adam(net.parameters()), search_every=10, search_when="risen", module=net
        )
    ),
    "unsure": plain(lambda net: hotswap.HotSwapSGD(net, hotswap.log_grid(1, 1e-3, 7), search_when="unsure")),
    "untried": plain(
        lambda net: hotswap.HotSwapSGD(net, hotswap.log_grid(1, 1e-3, 7), search=hotswap.NoSearch(), loss_scale=64)
    ),
    "groups": grouped,
    "accumulated": accumulated,
    "noisy": noisy,
    "given": given,
    "resumed": resumed,
}


def trace(loop: Loop, dtype: torch.dtype) -> dict[str, Any]:
    """What the steps of one training did."""
    arms: list[int | None] = []
    trials, losses, trained_net = [], [], nn.Module()
    for optimizer, net in loop(dtype):
        record, trained_net = optimizer.last_step, net
        arms.append(record.arm)
        trials.append(len(record.trials))
        if len(arms) % SPACING == 1:
            losses.append(rounded(record.loss_before))
    numbers = [tensor.detach().numpy().tobytes() for tensor in (*trained_net.parameters(), *trained_net.buffers())]
    return {
        "arms": arms,
        "trials": trials,
        "losses": losses,
        "digest": hashlib.sha256(b"".join(numbers)).hexdigest(),
    }


def rounded(number: float) -> float | str:
    return float(f"{number:.3e}") if math.isfinite(number) else str(number)


def traces_of_the_oracle() -> dict[str, Any]:
    """The starts, arms and trials of the oracle on the problems that it shares with the optimizer."""
    found = {}
    kinds: dict[str, dict[str, Any]] = {
        "paper": {},
        "headroom": {"headroom": 1},
        "prose": {"first_decrease": True},
        "armijo": {"other_search": armijo},
        "both ways": {"other_search": both_ways},
    }
    for make in PROBLEMS:
        for kind, settings in kinds.items():
            problem = make()
            oracle = Ducb(np.logspace(2, -6, 33), **settings)
            steps = hot_swap_ducb(problem.f, problem.g, problem.theta, problem.batches[:STEPS_OF_ORACLE], oracle)
            found[f"{problem.name}, {kind}"] = {
                "starts": [step.start for step in steps],
                "arms": [step.arm for step in steps],
                "trials": [len(step.trials) for step in steps],
                "losses": [rounded(step.trials[-1][1]) for step in steps[::SPACING]],
            }
    return found


def arithmetic() -> str:
    """A digest of what the processor makes of products, sums and functions: where it is the same, all digests are."""
    numbers = np.random.RandomState(2)
    parts = [torch.__version__.encode()]
    for dtype in (torch.float64, torch.float32):
        x, y = (torch.from_numpy(numbers.uniform(-2, 2, shape)).to(dtype) for shape in ((16, 6), (6, 8)))
        made = torch.cat([(x @ y).flatten(), torch.tanh(x).flatten(), x.exp().sum(0), (x @ y).log_softmax(1).flatten()])
        parts.append(made.numpy().tobytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()


def trained() -> dict[str, Any]:
    """Everything that is kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hotswap.HotSwapWarning)
            setups = {
                name: {kind: trace(loop, getattr(torch, kind)) for kind in ("float64", "float32")}
                for name, loop in SETUPS.items()
            }
        return {"arithmetic": arithmetic(), "setups": setups, "oracle": traces_of_the_oracle()}
    finally:
        torch.set_num_threads(threads)


def main() -> None:
    lines = json.dumps(trained(), indent=1)
    FILE.write_text(compact(lines) + "\n", encoding="utf-8")


def compact(text: str) -> str:
    """Lists of numbers on one line."""
    made: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside:
            made[-1] += line.strip() + ("" if line.strip().startswith("]") else " ")
            inside = not line.strip().startswith("]")
        else:
            made.append(line)
            inside = line.endswith("[")
    return "\n".join(made)


if __name__ == "__main__":
    main()
