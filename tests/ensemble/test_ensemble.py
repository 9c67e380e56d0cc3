"""Many runs at once are what each would be alone, and what the optimizer would do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import Backtracking, DiscountedUCB, FirstDecrease, HotSwapSGD, log_grid
from hotswap.ensemble import (
    AdaDelta,
    Ducb,
    Ensemble,
    EpochTally,
    FunctionalModel,
    Mlp,
    Model,
    Sgd,
    TrainingData,
    Update,
)
from hotswap.networks import Activation, multilayer_perceptron

D = torch.float64
SIZES = (6, 9, 7, 3)
STEPS = 200
BATCH = 10


def data(count: int = 2000) -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count + 200, 6, generator=generator, dtype=D)
    y = (x[:, 0] > 0).long() + (x[:, 1] * x[:, 2] > 0.3).long()
    return TrainingData(x[:count], y[:count], x[count:], y[count:])


def batches(epochs: int = 1, data_seed: int = 5) -> list[tuple[Tensor, Tensor]]:
    """The minibatches an ensemble would see."""
    held, made = data(), []
    for epoch in range(epochs):
        shuffle = torch.Generator().manual_seed(data_seed * 1_000_003 + epoch)
        order = torch.randperm(len(held.train_x), generator=shuffle).view(-1, BATCH)
        made.extend((held.train_x[rows], held.train_y[rows]) for rows in order)
    return made


MODELS: dict[str, Callable[[], Model]] = {
    "mlp": lambda: Mlp(SIZES),
    "functional": lambda: FunctionalModel(lambda seed: multilayer_perceptron(SIZES, seed=seed)),
}


def train(update: Update, epochs: int = 1) -> Ensemble:
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    for epoch in range(epochs):
        ensemble.train_epoch(epoch)
    return ensemble


def flat(network: nn.Module, like: str) -> Tensor:
    """A network's parameters in the layout of the model."""
    if like == "functional":
        return torch.cat([p.detach().flatten() for p in network.parameters()])
    return Mlp(SIZES).flatten(network)


def ducb(model: Model, seeds: list[int], block: tuple[int, int] = (4, 8), search: Any = None) -> Ducb:
    theta = model.initial(seeds).to(D)
    return Ducb(model, theta, log_grid(), DiscountedUCB(), search or Backtracking(), block=block)


SGD_RUNS = [(0.3, 0.9, 0.9), (0.1, 1.0, 0.9), (0.3, 0.5, 0.5), (1.0, 0.99, 0.0), (0.03, 1.0, 0.0)]  # rate, decay, μ


def sgd(model: Model, runs: list[tuple[float, float, float]] = SGD_RUNS) -> Sgd:
    rates, decays, momenta = zip(*runs, strict=True)
    return Sgd(model, model.initial([3] * len(runs)).to(D), rates, decays, momenta)


@pytest.mark.parametrize("kind", MODELS)
def test_ducb_takes_the_optimizers_decisions(kind: str) -> None:
    update = ducb(MODELS[kind](), [0, 1, 2])
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    ensemble.train_epoch(0)
    counts = update.tally.arms
    for run, seed in enumerate([0, 1, 2]):
        network = multilayer_perceptron(SIZES, seed=seed).to(D)
        optimizer = HotSwapSGD(network.parameters())
        trials = 0
        taken = torch.zeros(33, dtype=D)
        for x, y in batches():
            optimizer.step(lambda x=x, y=y, network=network: cross_entropy(network(x), y))
            trials += len(optimizer.last_step.trials)
            if optimizer.last_step.arm is not None:
                taken[optimizer.last_step.arm] += 1
        assert taken.sum() > STEPS / 2
        assert torch.equal(counts[run], taken)
        assert int(update.tally.trials[run]) == trials
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)
        learned = torch.tensor([row.count for row in optimizer.statistics()], dtype=D)
        torch.testing.assert_close(update.learned.counts[run], learned, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("search", [Backtracking(headroom=1), FirstDecrease(), Backtracking(max_trials=3)], ids=repr)
@pytest.mark.parametrize("block", [(1, 1), (3, 2), (2, 7), (33, 1)])
def test_the_size_of_a_block_changes_nothing(block: tuple[int, int], search: Any) -> None:
    one, other = (ducb(Mlp(SIZES), [0, 1], block=sizes, search=search) for sizes in ((2, 2), block))
    train(one)
    train(other)
    assert torch.equal(one.tally.arms, other.tally.arms)
    assert torch.equal(one.tally.trials, other.tally.trials)
    torch.testing.assert_close(one.theta, other.theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_sgd_has_the_rate_inside_the_velocity(kind: str) -> None:
    update = sgd(MODELS[kind]())
    train(update, epochs=3)
    for run, (rate, decay, momentum) in enumerate(SGD_RUNS):
        network = multilayer_perceptron(SIZES, seed=3).to(D)
        velocity = [torch.zeros_like(p) for p in network.parameters()]
        for number, (x, y) in enumerate(batches(epochs=3)):
            network.zero_grad()
            cross_entropy(network(x), y).backward()
            alpha = rate * decay ** (number // STEPS)
            with torch.no_grad():
                for p, v in zip(network.parameters(), velocity, strict=True):
                    v.mul_(momentum).sub_(alpha * p.grad)
                    p.add_(v)
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_adadelta_is_torchs(kind: str) -> None:
    model = MODELS[kind]()
    update = AdaDelta(model, model.initial([0, 1]).to(D))
    train(update)
    for run in range(2):
        network = multilayer_perceptron(SIZES, seed=run).to(D)
        optimizer = torch.optim.Adadelta(network.parameters(), lr=1.0, rho=0.95, eps=1e-6)
        for x, y in batches():
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
            optimizer.step()
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unit", ["sigmoid", "tanh", "relu"])
@pytest.mark.parametrize("sizes", [(6, 3), (6, 5, 3), SIZES])
def test_the_backward_pass_written_out_is_autograds(unit: Activation, sizes: tuple[int, ...]) -> None:
    fast = Mlp(sizes, unit)
    slow = FunctionalModel(lambda seed: multilayer_perceptron(sizes, seed=seed, unit=unit))
    (x, y), seeds = batches()[0], [0, 1, 2]
    ours, theirs = fast.initial(seeds).to(D), slow.initial(seeds).to(D)
    wide = fast.prepare(x)
    a = fast.before_trials(fast.gradient(ours, wide, y), wide)
    b = slow.before_trials(slow.gradient(theirs, x, y), x)
    torch.testing.assert_close(a.loss, b.loss)
    torch.testing.assert_close(a.direction.norm(dim=1), b.direction.norm(dim=1))
    torch.testing.assert_close(fast.gradient_norm(ours, wide, y), b.direction.norm(dim=1))
    rates = torch.tensor([[10.0, 1.0, 0.1]] * 3, dtype=D)
    torch.testing.assert_close(fast.trials(ours, a, rates, wide, y), slow.trials(theirs, b, rates, x, y))
    torch.testing.assert_close(fast.scores(ours, wide), slow.scores(theirs, x))


def test_a_run_does_not_depend_on_those_beside_it() -> None:
    together = ducb(Mlp(SIZES), [0, 1, 2, 3])
    train(together)
    for seed in range(4):
        alone = ducb(Mlp(SIZES), [seed])
        train(alone)
        assert torch.equal(alone.tally.arms[0], together.tally.arms[seed])
        torch.testing.assert_close(alone.theta[0], together.theta[seed], rtol=1e-9, atol=1e-9)
    every = sgd(Mlp(SIZES))
    train(every)
    for number, run in enumerate(SGD_RUNS):
        single = sgd(Mlp(SIZES), [run])
        train(single)
        torch.testing.assert_close(single.theta[0], every.theta[number], rtol=1e-9, atol=1e-9)


def test_a_run_that_diverges_is_kept_and_the_others_go_on() -> None:
    runs = [(0.1, 1.0, 0.9), (1e200, 1.0, 0.0)]
    update = sgd(Mlp(SIZES, "relu"), runs)
    measured = train(update).measure()
    assert measured.train_nll[0] < 1.0
    assert measured.train_nll[1] != measured.train_nll[1]  # NaN, and said so
    assert measured.test_error[1] > 0.3
    alone = train(sgd(Mlp(SIZES, "relu"), runs[:1])).measure()
    assert measured.train_nll[0] == pytest.approx(alone.train_nll[0], rel=1e-9)


def test_measuring() -> None:
    update = sgd(Mlp(SIZES))
    ensemble = train(update)
    ensemble.train_epoch(1)
    tally = ensemble.tally()
    measured = ensemble.measure()
    held = data()
    scores = update.model.scores(update.theta, update.model.prepare(held.test_x))
    for run, (rate, decay, _) in enumerate(SGD_RUNS):
        assert tally.mean_rate[run] == pytest.approx(rate * decay)
        assert measured.test_nll[run] == pytest.approx(cross_entropy(scores[run], held.test_y).item())
        assert measured.test_error[run] == pytest.approx((scores[run].argmax(1) != held.test_y).double().mean().item())
    assert tally.steps == STEPS
    assert all(norm > 0 for norm in tally.gradient_norm)
    assert ducb_tally_counts_trials()


def tally_of(update: Update, *, watched: bool = True) -> EpochTally:
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    ensemble.train_epoch(0, watched=watched)
    return ensemble.tally()


@pytest.mark.parametrize(
    "make", [sgd, lambda model: AdaDelta(model, model.initial([0, 1]).to(D)), lambda model: ducb(model, [0, 1])]
)
def test_what_nobody_reads_is_not_computed_and_changes_nothing(make: Callable[[Mlp], Update]) -> None:
    one, other = make(Mlp(SIZES)), make(Mlp(SIZES))
    start = one.theta.clone()
    watched, unwatched = (tally_of(update, watched=watched) for update, watched in ((one, True), (other, False)))
    assert not torch.equal(one.theta, start)
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name
    assert watched.mean_rate == unwatched.mean_rate
    assert all(norm > 0 for norm in watched.gradient_norm)
    if not isinstance(one, Ducb):  # in whose step the norm is part of another kernel
        assert all(math.isnan(norm) for norm in unwatched.gradient_norm)


def ducb_tally_counts_trials() -> bool:
    update = ducb(Mlp(SIZES), [0])
    tally = tally_of(update)
    return tally.trials[0] > 1.0 and sum(tally.arms[0]) <= STEPS and tally.mean_rate[0] > 0


def test_runs_must_be_ordered_by_momentum() -> None:
    momenta = [0.0, 0.9, 0.5, 0.9]
    assert [momenta[run] for run in Sgd.order(momenta)] == [0.9, 0.9, 0.5, 0.0]
    with pytest.raises(ValueError, match="ordered by momentum"):
        sgd(Mlp(SIZES), [(0.1, 1.0, 0.0), (0.1, 1.0, 0.9)])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["sgd", "adadelta", "ducb"])
def test_cuda_graphs_do_what_the_cpu_does(kind: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        model = Mlp(SIZES)
        theta = model.initial([0, 1, 2]).to(device, D)
        update: Update
        if kind == "sgd":
            update = Sgd(model, theta, [0.1, 0.3, 0.1], [0.9] * 3, [0.9, 0.5, 0.0])
        elif kind == "adadelta":
            update = AdaDelta(model, theta)
        else:
            update = Ducb(model, theta, log_grid(), DiscountedUCB(), Backtracking())
        held = data()
        moved = TrainingData(*(t.to(device) for t in (held.train_x, held.train_y, held.test_x, held.test_y)))
        ensemble = Ensemble(update, moved, BATCH, data_seed=5)
        tallies = []
        for epoch in range(3):
            ensemble.train_epoch(epoch, watched=epoch < 2)
            tallies.append(ensemble.tally())
        results.append((update.theta.cpu(), [t.trials for t in tallies], [t.arms for t in tallies], ensemble.measure()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-8, atol=1e-8)
    assert results[0][1] == [pytest.approx(trials) for trials in results[1][1]]
    assert results[0][2] == results[1][2]
    assert results[0][3].test_error == pytest.approx(results[1][3].test_error)
