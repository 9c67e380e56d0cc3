"""Many runs at once are what each would be alone, and what the optimizer would do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap.ensemble import Ensemble, FunctionalModel, HotSwapped, Mlp, Sgd, TrainingData, Update, Vsgd
from hotswap.networks import Activation, multilayer_perceptron
from tests.ensemble.helpers import (
    BATCH,
    SGD_RUNS,
    SIZES,
    STEPS,
    D,
    adadelta,
    batches,
    data,
    hot_swapped,
    sgd,
    tally_of,
    train,
)


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
        assert tally.means["mean_lr"][run] == pytest.approx(rate * decay)
        assert measured.test_nll[run] == pytest.approx(cross_entropy(scores[run], held.test_y).item())
        assert measured.test_error[run] == pytest.approx((scores[run].argmax(1) != held.test_y).double().mean().item())
    assert tally.steps == STEPS
    assert all(norm > 0 for norm in tally.gradient_norm)


@pytest.mark.parametrize(
    "make",
    [
        sgd,
        lambda model: adadelta(model, model.initial([0, 1]).to(D)),
        lambda model: hot_swapped(model, [0, 1]),
        lambda model: Vsgd(model, model.initial([0, 1]).to(D)),
    ],
)
def test_what_nobody_reads_is_not_computed_and_changes_nothing(make: Callable[[Mlp], Update]) -> None:
    one, other = make(Mlp(SIZES)), make(Mlp(SIZES))
    start = one.theta.clone()
    watched, unwatched = (tally_of(update, watched=watched) for update, watched in ((one, True), (other, False)))
    assert not torch.equal(one.theta, start)
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name
    assert watched.means == unwatched.means
    assert all(norm > 0 for norm in watched.gradient_norm)
    if not isinstance(one, HotSwapped):  # in whose step the norm is part of another kernel
        assert all(math.isnan(norm) for norm in unwatched.gradient_norm)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["sgd", "adadelta", "ducb", "vsgd"])
def test_cuda_graphs_do_what_the_cpu_does(kind: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        model = Mlp(SIZES)
        theta = model.initial([0, 1, 2]).to(device, D)
        update: Update
        if kind == "sgd":
            update = Sgd(model, theta, [0.1, 0.3, 0.1], [0.9] * 3, [0.9, 0.5, 0.0])
        elif kind == "adadelta":
            update = adadelta(model, theta)
        elif kind == "vsgd":
            update = Vsgd(model, theta)
        else:
            update = hot_swapped(model, [0, 1, 2], device)
        held = data()
        moved = TrainingData(*(t.to(device) for t in (held.train_x, held.train_y, held.test_x, held.test_y)))
        ensemble = Ensemble(update, moved, BATCH, data_seed=5)
        tallies = []
        for epoch in range(3):
            ensemble.train_epoch(epoch, watched=epoch < 2)
            tallies.append(ensemble.tally())
        results.append((update.theta.cpu(), [t.means for t in tallies], [t.arms for t in tallies], ensemble.measure()))
    # vSGD divides differences of gradients by tiny steps: starts that differ by 1e-15 end 6e-7 apart, on a CPU alone
    near = 2e-6 if kind == "vsgd" else 1e-8
    torch.testing.assert_close(results[0][0], results[1][0], rtol=near, atol=near)
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        assert ours == {name: pytest.approx(values, rel=max(near, 1e-6)) for name, values in theirs.items()}
    assert results[0][2] == results[1][2]
    assert results[0][3].test_error == pytest.approx(results[1][3].test_error)
