"""Races in an ensemble: the decisions and the weights of the optimizer's, for several runs at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import CheckpointError, SettingError, log_grid
from hotswap.ensemble import Ensemble, FunctionalModel, Mlp, Model, Raced, TrainingData
from hotswap.networks import multilayer_perceptron
from hotswap.studies.algorithms.adam import rule
from tests.ensemble.helpers import BATCH, SIZES, D, data, flat, sgd

STEPS, EPOCHS = 10, 12
RATES = log_grid(3e-2, 1e-4, 6)
SEEDS = [3, 1]
ADAMW = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}


@dataclass
class Case:
    """The lanes of a race, and its settings."""

    rates: tuple[float, ...] = RATES
    settings: dict[str, Any] = field(default_factory=lambda: {"rounds": ((0.15, 4), (0.4, 2), (0.7, 1)), "least": 5})


CASES = {
    "six lanes": Case(),
    "a race that is not won by the largest rate": Case(log_grid(3.0, 1e-3, 6)),
    "rounds that end within the first losses": Case(settings={"rounds": ((0.03, 3), (0.06, 1)), "least": 2}),
    "the default rounds": Case(settings={}),
    "a lane that is not finite": Case((1e200, *RATES[1:])),
    "a lane far above the first losses": Case((30.0, *RATES[1:])),
    "so many out that places stay empty": Case((1e220, 1e210, 1e200, 30.0, 1e-2, 1e-3)),
    "so many far above the first losses": Case((1e4, 3e3, 1e3, 1e-2, 1e-3, 1e-4)),
    "first losses of lanes that are out since": Case(
        (3.9, 3.8, 0.77, 0.42, 0.0039, 0.0013), {"rounds": ((0.02, 4), (0.04, 3), (0.2, 1)), "least": 2}
    ),
    "no schedule": Case(settings={"rounds": ((0.2, 2), (0.5, 1)), "warmup": None, "decay": None}),
}


def build(seed: int) -> nn.Sequential:
    """With batch norm, whose statistics belong to lanes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 3))


def raced(case: Case, seeds: list[int] = SEEDS, model: Model | None = None, epochs: int = EPOCHS) -> Raced:
    model = Mlp(SIZES) if model is None else model
    theta = model.initial(seeds * len(case.rates)).to(D)
    return Raced(model, theta, rule, ("mean", "square"), ADAMW, rates=case.rates, epochs=epochs, **case.settings)


def ensemble_of(update: Raced) -> Ensemble:
    held = data(STEPS * BATCH)
    return Ensemble(update, held, BATCH, data_seed=5)


def optimizer_of(case: Case, network: nn.Module) -> hotswap.Race:
    base = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
    return hotswap.Race(base, {"lr": case.rates}, STEPS * EPOCHS, module=network, **case.settings)


def epoch_of(optimizer: hotswap.Race, network: nn.Module, epoch: int) -> list[hotswap.optim.RaceStep]:
    held = data(STEPS * BATCH)
    shuffle = torch.Generator().manual_seed(5 * 1_000_003 + epoch)
    taken = []
    for rows in torch.randperm(STEPS * BATCH, generator=shuffle).view(-1, BATCH):
        optimizer.step(lambda rows=rows: cross_entropy(network(held.train_x[rows]), held.train_y[rows]))
        assert optimizer.last_step is not None
        taken.append(optimizer.last_step)
    return taken


def assert_equal_so_far(
    update: Raced, run: int, optimizer: hotswap.Race, taken: list[hotswap.optim.RaceStep], weights: Tensor
) -> None:
    """Who leads, who is racing, what lanes will be judged by, what was counted, and the leader's weights."""
    course, standing, tally = optimizer._course, update.standing.first(update.lanes), update.tally
    lanes, alive = standing.lane[:, run].tolist(), standing.alive[:, run].tolist()
    assert lanes[standing.leader[run]] == course.leader
    assert [lane for lane, racing in zip(lanes, alive, strict=True) if racing] == [one.number for one in course.lanes]
    sums = {lane: standing.total[lanes.index(lane), run].item() for lane in course.sums if course.won is None}
    assert sums == pytest.approx({} if course.won else course.sums, rel=1e-8)
    steps = [sum(lane in step.losses for step in taken) for lane in range(len(update.rates))]
    assert tally.arms[run].tolist() == steps
    assert tally.totals["passes"][run].item() == 3 * optimizer.cost.passes
    rates = [step.values[step.leader]["lr"] for step in taken]
    assert tally.sums["mean_lr"][run].item() == pytest.approx(sum(rates))
    torch.testing.assert_close(update.theta[update.rows()[run]], weights, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_race_takes_the_optimizers_decisions(case: Case) -> None:
    update = raced(case)
    ensemble = ensemble_of(update)
    networks = [multilayer_perceptron(SIZES, seed=seed).to(D) for seed in SEEDS]
    optimizers = [optimizer_of(case, network) for network in networks]
    for epoch in range(EPOCHS):
        ensemble.train_epoch(epoch)
        for run, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            taken = epoch_of(optimizer, network, epoch)
            assert_equal_so_far(update, run, optimizer, taken, flat(network, "mlp"))
    assert all(optimizer.winner is not None for optimizer in optimizers)
    assert update.theta.shape == (len(SEEDS), update.model.size)


def test_the_cases_are_what_they_are_called() -> None:
    """So that the comparison above compares something."""
    found = {}
    for name, case in CASES.items():
        network = multilayer_perceptron(SIZES, seed=SEEDS[0]).to(D)
        optimizer = optimizer_of(case, network)
        for epoch in range(EPOCHS):
            epoch_of(optimizer, network, epoch)
        found[name] = [row.reason for row in optimizer.standings()]
    assert found["a lane that is not finite"][0] == "out: its loss was not finite"
    assert found["a lane far above the first losses"][0] == "out: its loss was far above that of the first steps"
    assert sum("out: its loss was" in reason for reason in found["so many out that places stay empty"]) == 3
    assert sum("far above" in reason for reason in found["so many far above the first losses"]) == 3
    assert sum("far above" in reason for reason in found["first losses of lanes that are out since"]) == 2
    reasons = found["a race that is not won by the largest rate"]
    assert reasons.index("out: 4th of 4") < reasons.index("out: 2nd of 2") < reasons.index("won")
    assert "out: 4th of 6" in found["rounds that end within the first losses"]


def test_buffers_go_with_their_lanes() -> None:
    case = CASES["six lanes"]
    model = FunctionalModel(build)
    update = raced(case, model=model)
    ensemble = ensemble_of(update)
    networks = [build(seed).to(D) for seed in SEEDS]
    optimizers = [optimizer_of(case, network) for network in networks]
    for epoch in range(EPOCHS):
        ensemble.train_epoch(epoch)
        measured = ensemble.measure()
        for run, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
            epoch_of(optimizer, network, epoch)
            weights = torch.cat([p.detach().flatten() for p in network.parameters()])
            torch.testing.assert_close(update.theta[update.rows()[run]], weights, rtol=1e-7, atol=1e-8)
            row = update.rows()[run]
            for name, buffer in network.named_buffers():
                torch.testing.assert_close(model.buffers[name][row], buffer, rtol=1e-7, atol=1e-8)
            network.eval()
            held = data(STEPS * BATCH)
            loss = cross_entropy(network(held.test_x), held.test_y).item()
            network.train()
            assert measured.test_nll[run] == pytest.approx(loss, rel=1e-6)


def test_a_leader_that_is_out_is_followed_by_the_best() -> None:
    case = CASES["a lane that is not finite"]
    update = raced(case, seeds=[3])
    update.standing.leader.zero_()
    network = multilayer_perceptron(SIZES, seed=3).to(D)
    optimizer = optimizer_of(case, network)
    optimizer._course.leader = 0
    ensemble_of(update).train_epoch(0)
    assert_equal_so_far(update, 0, optimizer, epoch_of(optimizer, network, 0), flat(network, "mlp"))
    assert optimizer._course.leader > 0


def test_a_lane_that_is_out_does_not_come_back() -> None:
    """Not even one that would have won, had none of its losses been infinite."""
    case = CASES["six lanes"]
    update, other = raced(case), raced(case)
    other.standing.alive[0] = False
    for epoch in range(EPOCHS):
        ensemble_of(update).train_epoch(epoch)
        ensemble_of(other).train_epoch(epoch)
    assert update.standing.lane[0].tolist() == [0, 0]
    assert other.standing.lane[0].tolist() == [1, 1]


def test_norms_are_the_leaders_and_nobodys_where_nobody_reads_them() -> None:
    watched, unwatched = (ensemble_of(raced(CASES["six lanes"])) for _ in range(2))
    for epoch in range(2):
        watched.train_epoch(epoch)
        unwatched.train_epoch(epoch, watched=False)
    for name, tensor in watched.state().items():
        assert torch.equal(tensor, unwatched.state()[name]), name
    assert all(math.isnan(norm) for norm in unwatched.tally().gradient_norm)
    network = multilayer_perceptron(SIZES, seed=SEEDS[0]).to(D)
    optimizer = optimizer_of(CASES["six lanes"], network)
    epoch_of(optimizer, network, 0)
    held, shuffle, norms = data(STEPS * BATCH), torch.Generator().manual_seed(5 * 1_000_003 + 1), []
    for rows in torch.randperm(STEPS * BATCH, generator=shuffle).view(-1, BATCH):

        def loss(rows: Tensor = rows) -> Tensor:
            return cross_entropy(network(held.train_x[rows]), held.train_y[rows])

        gradient = torch.autograd.grad(loss(), list(network.parameters()))
        norms.append(torch.cat([part.flatten() for part in gradient]).norm().item())
        optimizer.step(loss)
    assert watched.tally().gradient_norm[0] == pytest.approx(sum(norms) / STEPS)


def test_a_run_races_alone_as_it_does_beside_others() -> None:
    case = CASES["six lanes"]
    together = raced(case)
    for epoch in range(EPOCHS):
        ensemble_of(together).train_epoch(epoch)
    for run, seed in enumerate(SEEDS):
        alone = raced(case, [seed])
        for epoch in range(EPOCHS):
            ensemble_of(alone).train_epoch(epoch)
        torch.testing.assert_close(alone.theta[0], together.theta[run], rtol=1e-9, atol=1e-9)
        assert alone.standing.lane[0, 0] == together.standing.lane[0, run]


def test_a_race_of_which_nothing_is_left_goes_on_as_it_is() -> None:
    """It has diverged, as runs of other algorithms do."""
    ensemble = ensemble_of(raced(Case((1e220, 1e210, 1e200), {"rounds": ((0.2, 2), (0.5, 1)), "least": 2})))
    for epoch in range(EPOCHS):
        ensemble.train_epoch(epoch)
    assert all(math.isnan(loss) for loss in ensemble.measure().train_nll)
    tally = ensemble.tally()
    assert tally.arms == [[0.0] * 3] * 2
    assert tally.totals["passes"] == [pytest.approx(passes) for passes in tally.totals["passes"]]
    assert max(tally.totals["passes"]) <= 3 * 3 * STEPS


@pytest.mark.parametrize("kind", ["mlp", "functional"])
@pytest.mark.parametrize("after", [1, 2, 3, 6, 8])
def test_training_that_was_interrupted_continues_exactly(kind: str, after: int) -> None:
    def fresh() -> Ensemble:
        model = Mlp(SIZES) if kind == "mlp" else FunctionalModel(build)
        settings = {"rounds": ((0.05, 4), (0.2, 2), (0.5, 1)), "least": 2}  # until steps 6, 24 and 60
        return ensemble_of(raced(Case((1e200, *RATES[1:]), settings), model=model))

    straight, first, second = fresh(), fresh(), fresh()
    for epoch in range(EPOCHS):
        straight.train_epoch(epoch)
    for epoch in range(after):
        first.train_epoch(epoch)
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    second.update.theta.normal_()
    second.restore(saved)
    assert second.measure() == first.measure()
    for epoch in range(after, EPOCHS):
        second.train_epoch(epoch)
    assert straight.tally() == second.tally()
    for name, tensor in straight.state().items():
        assert torch.equal(tensor.nan_to_num(), second.state()[name].nan_to_num()), name


@pytest.mark.parametrize("after", [0, 3])
def test_running_every_piece_beforehand_leaves_no_trace(after: int) -> None:
    """As on a GPU, where pieces are captured in graphs, and the state is put back afterwards."""
    straight, warmed = (ensemble_of(raced(CASES["six lanes"])) for _ in range(2))
    for epoch in range(after):
        straight.train_epoch(epoch)
    warmed.restore({name: tensor.clone() for name, tensor in straight.state().items()})
    saved = {name: tensor.clone() for name, tensor in warmed.state().items()}
    for piece in warmed.ready().values():
        warmed._now.zero_()
        piece()
    for name, tensor in warmed.state().items():
        tensor.copy_(saved[name])
    for epoch in range(after, EPOCHS):
        straight.train_epoch(epoch)
        warmed.train_epoch(epoch)
        assert straight.tally() == warmed.tally()
    for name, tensor in straight.state().items():
        assert torch.equal(tensor.nan_to_num(), warmed.state()[name].nan_to_num()), name


def test_a_snapshot_holds_the_lanes_that_are_left() -> None:
    ensemble = ensemble_of(raced(CASES["six lanes"]))
    shapes = []
    for epoch in range(EPOCHS):
        ensemble.train_epoch(epoch)
        shapes.append(ensemble.state()["theta"].shape[:2])
    assert shapes == [(2, 6)] + [(2, 4)] * 3 + [(2, 2)] * 4 + [(2, 1)] * 4


def test_refuses() -> None:
    with pytest.raises(SettingError, match=r"Race\(total_steps=10\): these rounds need at least 60 steps"):
        ensemble_of(raced(Case(settings={}), epochs=1))
    with pytest.raises(ValueError, match="once for each of the 6 lanes, but it has 5 rows"):
        Raced(Mlp(SIZES), Mlp(SIZES).initial([0] * 5), rule, (), ADAMW, rates=RATES, epochs=1)
    update = raced(CASES["six lanes"])
    with pytest.raises(CheckpointError, match="of another algorithm or network: it has no 'lane'"):
        update.restore(sgd(Mlp(SIZES)).state())
    with pytest.raises(CheckpointError, match="of other runs"):
        update.restore(raced(CASES["six lanes"], [0]).state())


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["mlp", "functional"])
def test_cuda_graphs_do_what_the_cpu_does(kind: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        model = Mlp(SIZES) if kind == "mlp" else FunctionalModel(build)
        # What batch norm makes of a variance that overflows differs between devices, and so would the step in which a
        # lane with a huge rate is out. After a step with an infinite one, no weight is finite.
        case = Case((math.inf, *RATES[1:]))
        theta = model.initial(SEEDS * len(case.rates)).to(device, D)
        settings = {"rates": case.rates, "epochs": EPOCHS, **case.settings}
        held = data(STEPS * BATCH)
        moved = TrainingData(*(t.to(device) for t in (held.train_x, held.train_y, held.test_x, held.test_y)))
        update = Raced(model, theta, rule, ("mean", "square"), ADAMW, **settings)
        ensemble = Ensemble(update, moved, BATCH, data_seed=5)
        seen = []
        for epoch in range(EPOCHS):
            if epoch == EPOCHS // 2:  # in the middle of the race, from a snapshot
                saved = {name: tensor.clone() for name, tensor in ensemble.state().items()}
                ensemble.train_epoch(epoch)
                ensemble.restore(saved)
            ensemble.train_epoch(epoch, watched=epoch % 2 == 0)
            tally = ensemble.tally()
            seen.append((tally.arms, tally.totals["passes"], tally.means["mean_lr"], tally.gradient_norm))
        results.append((update.theta.cpu(), seen, ensemble.measure()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-7, atol=1e-8)
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2] == pytest.approx(theirs[2])
        assert ours[3] == pytest.approx(theirs[3], nan_ok=True)
    assert [arms[0] for arms in results[0][1][0][0]] == [2.0, 2.0]  # the step after which it is out, and that one
    assert results[0][2].test_error == pytest.approx(results[1][2].test_error)
