"""What a user does between steps: parameters come, thaw and freeze; weights are edited; races are copied and saved."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from tests.race.helpers import (
    Batch,
    equal,
    loss_of,
    made,
    minibatches,
    perceptron,
    step,
    tensors_of,
    through_a_file,
    with_dropout_and_norm,
)

STEPS = 100


class Adapted(nn.Module):
    """A perceptron with a second layer that joins later."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()
        self.more = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + self.more(self.net(x))


def both(model: Adapted) -> list[Optimizer]:
    parts = list(model.net.parameters())
    return [AdamW(parts, lr=0.01), SGD(parts, lr=0.1, momentum=0.9)]


def changed(model: Adapted, race: hotswap.Race, number: int) -> None:
    """Change the parameters before some steps."""
    first = model.net[0].weight
    if number == 7:
        first.requires_grad_(False)
    elif number == 33:
        first.requires_grad_(True)
    elif number == 15:
        model.more.zero_grad()
        race.add_param_group({"params": list(model.more.parameters()), "lr": 0.02})
    first.data.clamp_(-0.4, 0.4)


def run(model: Adapted, race: hotswap.Race, batches: list[Batch], begin: int = 0) -> Iterator[int]:
    for number, batch in enumerate(batches[begin:], begin):
        changed(model, race, number)
        yield number
        step(model, race, batch)


@pytest.mark.parametrize("winner", [0, 1])
def test_the_winner_has_what_came_late_thawed_and_was_edited_and_resumes_at_every_step(winner: int) -> None:
    """Exactly as its optimizer alone, with the same changes before the minibatches of its turns."""

    def judge(_: nn.Module, asked: list[int]) -> float:
        asked.append(1)
        return float((len(asked) + winner + 1) % 2)  # the lane that is asked about first, or second

    model, asked = made(Adapted), list[int]()
    race = hotswap.Race(model, both(model), total_steps=400, judge=lambda m: judge(m, asked), schedule=None)
    batches, saved, took = minibatches(STEPS), [], []
    for number in run(model, race, batches):
        took.append(race.current)
        if number not in (15, 33) and number % (1 if winner else 9) == 0:
            saved.append((number, through_a_file(model.state_dict()), through_a_file(race.state_dict()), len(asked)))
    assert race.winner is not None
    assert race.winner.optimizer is race._contest.lanes[winner].optimizer

    alone = made(Adapted)
    optimizer = both(alone)[winner]
    optimizer_has_more = False
    for number, (lane, batch) in enumerate(zip(took, batches, strict=True)):
        if number == 7:
            alone.net[0].weight.requires_grad_(False)
        if number == 33:
            alone.net[0].weight.requires_grad_(True)
        if number == 15:
            rate = 0.02 / 0.01 * (0.01, 0.1)[winner]
            optimizer.add_param_group({"params": list(alone.more.parameters()), "lr": rate})
            optimizer_has_more = True
        if lane is not race.winner:
            continue
        alone.net[0].weight.data.clamp_(-0.4, 0.4)
        loss_of(alone, batch).backward()
        optimizer.step()
        alone.zero_grad()
    assert optimizer_has_more
    assert equal([p.detach() for p in model.parameters()], [p.detach() for p in alone.parameters()])

    for number, weights, state, so_far in saved:
        again, count = made(Adapted, seed=3), [1] * so_far
        other = hotswap.Race(again, both(again), total_steps=400, judge=lambda m: judge(m, count), schedule=None)  # noqa: B023
        if number > 15:
            other.add_param_group({"params": list(again.more.parameters()), "lr": 0.02})
        again.net[0].weight.requires_grad_(not 7 <= number < 33)
        again.load_state_dict(weights)
        other.load_state_dict(state)
        for _ in run(again, other, batches, number):
            pass
        assert equal(list(tensors_of(again, other)), list(tensors_of(model, race))), number


def test_parameters_that_are_added_reach_every_copy_of_the_model() -> None:
    """The start, averages, parked lanes, and the model that a judge liked best."""
    model = made(Adapted)
    race = hotswap.Race(model, both(model), total_steps=300, judge=lambda _: 1.0)
    batches = minibatches(300)
    for number, batch in enumerate(batches):
        if number == 200:
            race.eval()
            race.add_param_group({"params": list(model.more.parameters())})
            race.train()
        step(model, race, batch)
    assert race.winner is not None
    race.eval()


@pytest.mark.parametrize("lane", [0, 1])
def test_gradients_and_weights_outside_of_the_race_are_never_touched(lane: int) -> None:
    model = made(Adapted)
    for p in model.more.parameters():
        p.grad = torch.ones_like(p)
    before = [p.detach().clone() for p in model.more.parameters()]
    race = hotswap.Race(model, both(model), total_steps=300, judge=lambda _: 1.0)
    for batch in minibatches(80 if lane else 30):
        with torch.enable_grad():
            loss = nn.functional.cross_entropy(model.net(batch[0]), batch[1])

        def closure(loss: Tensor = loss) -> Tensor:
            return loss

        race.step(closure)
        race.eval()
        race.train()
    assert equal(before, [p.detach() for p in model.more.parameters()])
    for p in model.more.parameters():
        assert torch.equal(p.grad, torch.ones_like(p))


def test_further_tensors_belong_to_the_lanes_that_changed_them() -> None:
    model, teacher = made(perceptron), made(perceptron)
    lanes = [SGD(model.parameters(), lr=rate) for rate in (0.1, 1e-4)]
    race = hotswap.Race(model, lanes, total_steps=1000, also=list(teacher.parameters()), schedule=None)
    batches = minibatches(60)
    took = []
    for batch in batches:
        took.append(race.current.optimizer)
        step(model, race, batch)
        if race.current.optimizer is took[-1]:
            with torch.no_grad():
                for mine, p in zip(teacher.parameters(), model.parameters(), strict=True):
                    mine.lerp_(p, 0.1)
    assert race.winner is not None
    alone, beside = made(perceptron), made(perceptron)
    optimizer = SGD(alone.parameters(), lr=0.1)
    for number, batch in enumerate(batches):
        if took[number] is lanes[0]:
            loss_of(alone, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            if number != 19:  # at whose end the other lane came
                for mine, p in zip(beside.parameters(), alone.parameters(), strict=True):
                    mine.data.lerp_(p.data, 0.1)
    assert equal([p.detach() for p in teacher.parameters()], [p.detach() for p in beside.parameters()])


def pickled(pair: tuple[nn.Module, hotswap.Race]) -> tuple[nn.Module, hotswap.Race]:
    found: tuple[nn.Module, hotswap.Race] = pickle.loads(pickle.dumps(pair))
    return found


@pytest.mark.parametrize("make", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("number", [0, 10, 30, 70])
def test_a_copy_or_a_pickle_goes_on_bit_for_bit_and_shares_nothing(
    make: Callable[[tuple[nn.Module, hotswap.Race]], tuple[nn.Module, hotswap.Race]], number: int
) -> None:
    model = made(with_dropout_and_norm)
    lanes = [AdamW(model.parameters(), lr=0.01), hotswap.Muon(model, lr=0.01)]
    race = hotswap.Race(model, lanes, total_steps=400)
    scheduler = torch.optim.lr_scheduler.LambdaLR(race, lambda n: 0.99**n)
    batches = minibatches(100)

    def go(one: nn.Module, its: hotswap.Race, some: list[Batch]) -> list[Tensor]:
        torch.manual_seed(4)
        for batch in some:
            step(one, its, batch)
        return list(tensors_of(one, its))

    go(model, race, batches[:number])
    if number:
        scheduler.step()
    again, other = make((model, race))
    before = list(tensors_of(model, race))
    theirs = go(again, other, batches[number:])
    assert equal(list(tensors_of(model, race)), before)
    assert equal(go(model, race, batches[number:]), theirs)
    assert str(race.standings()) == str(other.standings())
