"""What a race hands over: averages under `eval`, and the model that a judge liked best."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import hotswap
from hotswap import UnsupportedError
from hotswap.race.average import EVERY
from tests.race.helpers import equal, loss_of, made, minibatches, perceptron, step, two, with_dropout_and_norm


def values(model: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in (*model.parameters(), *model.buffers())]


def averaged(samples: list[list[Tensor]], left: list[float] | None = None) -> list[Tensor]:
    """Sample n has a weight in proportion to n**8, by its recurrence (in float64, from scratch).

    left: for each sample, how many will follow while rates fall to zero; no more are averaged.
    """
    found = [one.double() for one in samples[0]]
    for number, sample in enumerate(samples[1:], 2):
        share = max(9 / (8 + number), 0 if left is None else 1 / (1 + left[number - 1]))
        found = [(1 - share) * old + share * new.double() for old, new in zip(found, sample, strict=True)]
    return found


@pytest.mark.parametrize("steps", [7, 50, 130])
def test_eval_puts_the_leaders_average_with_its_last_buffers_into_the_model_and_train_takes_it_out(steps: int) -> None:
    """While the race goes on its first lane leads; it may wait in the host's memory."""
    model = made(with_dropout_and_norm)
    lanes = two(model)
    race = hotswap.Race(model, lanes, total_steps=400, schedule=None)
    samples: dict[Any, list[list[Tensor]]] = {lane: [] for lane in lanes}
    ends: dict[Any, list[Tensor]] = {}
    counts = dict.fromkeys(lanes, 0)
    for batch in minibatches(steps):
        lane = race.current.optimizer

        def sample(lane: Any = lane) -> None:
            counts[lane] += 1
            if counts[lane] % EVERY == 0:
                samples[lane].append([p.detach().clone() for p in model.parameters()])
            ends[lane] = [buffer.clone() for buffer in model.buffers()]

        handle = lane.register_step_post_hook(lambda *_, sample=sample: sample())
        step(model, race, batch)
        handle.remove()
    leader = race.leader.optimizer
    before = values(model)
    race.eval()
    race.eval()  # again changes nothing
    assert equal([b.clone() for b in model.buffers()], ends[leader])
    for ours, by_hand in zip(model.parameters(), averaged(samples[leader]), strict=True):
        torch.testing.assert_close(ours.double(), by_hand, rtol=1e-5, atol=1e-6)
    race.train()
    race.train()
    assert equal(values(model), before)


def test_a_step_under_eval_is_refused_and_before_the_first_step_eval_shows_the_model_as_it_is() -> None:
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, two(model), total_steps=400)
    before = values(model)
    race.eval()
    assert equal(values(model), before)
    race.calibrate([x for x, _ in minibatches(3)])
    loss = loss_of(model, minibatches(1)[0])
    with pytest.raises(UnsupportedError, match=r"call optimizer.train\(\)"):
        race.step(loss)
    race.train()
    assert equal(values(model), before)


def test_without_an_average_eval_shows_the_leaders_own_weights() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, [AdamW(model.parameters())], total_steps=50, average=False)
    for batch in minibatches(20):
        step(model, race, batch)
    before = values(model)
    race.eval()
    assert equal(values(model), before)


def test_calibrate_recomputes_the_statistics_of_batch_norm_for_as_long_as_eval_lasts() -> None:
    model = made(with_dropout_and_norm)
    race = hotswap.Race(model, two(model), total_steps=400)
    batches = minibatches(30)
    for batch in batches:
        step(model, race, batch)
    before = values(model)
    random = torch.get_rng_state()
    race.eval()
    norm = next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    race.calibrate(x for x, _ in batches)
    seen = torch.cat([model[1](model[0](x)) for x, _ in batches])
    torch.testing.assert_close(norm.running_mean, seen.mean((0, 2, 3)))
    assert model.training
    race.train()
    assert equal(values(model), before)
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("steps", [160, 190, 200])
def test_the_average_spans_fewer_samples_towards_the_end_and_is_the_last_weights_at_the_end(steps: int) -> None:
    model = made(perceptron)
    race = hotswap.Race(model, [AdamW(model.parameters())], total_steps=200)
    samples, left = [], []
    for number, batch in enumerate(minibatches(steps), 1):
        step(model, race, batch)
        if number % EVERY == 0:
            samples.append([p.detach().clone() for p in model.parameters()])
            left.append((200 - number) / EVERY)
    before = values(model)
    race.eval()
    for ours, by_hand in zip(model.parameters(), averaged(samples, left), strict=True):
        torch.testing.assert_close(ours.double(), by_hand, rtol=1e-5, atol=1e-6)
    assert equal(values(model), before) == (steps == 200)


def test_averages_of_low_precision_weights_are_kept_in_float32() -> None:
    model = perceptron().to(torch.bfloat16)
    race = hotswap.Race(model, [SGD(model.parameters(), lr=0.1)], total_steps=100, schedule=None)
    samples = []
    for number, batch in enumerate(minibatches(40), 1):
        step(model, race, batch)
        if number % EVERY == 0:
            samples.append([p.detach().clone() for p in model.parameters()])
    race.eval()
    for ours, by_hand in zip(model.parameters(), averaged(samples), strict=True):
        torch.testing.assert_close(ours, by_hand.to(torch.bfloat16), rtol=1e-2, atol=1e-3)


def test_a_judge_is_asked_without_gradients_and_leaves_no_trace() -> None:
    """Random numbers, modes, buffers and weights come back, whatever the judge does to the model."""
    seen = []

    def judge(model: nn.Module) -> float:
        seen.append(torch.is_grad_enabled())
        model.eval()
        torch.rand(7)
        for value in (*model.parameters(), *model.buffers()):
            value.zero_()
        return 1.0

    found = []
    for one in (judge, lambda _: 1.0):
        model = made(with_dropout_and_norm)
        race = hotswap.Race(model, two(model), total_steps=300, judge=one)
        for batch in minibatches(290):
            step(model, race, batch)
        assert model.training
        found.append([*values(model), torch.rand(1)])
    assert equal(*found)
    assert seen
    assert not any(seen)


def test_in_the_race_the_judge_decides_whatever_the_losses_are() -> None:
    """The judge likes large weights, which only a lane at a very large rate has."""
    model = made(perceptron)
    lanes = [SGD(model.parameters(), lr=rate) for rate in (0.1, 0.01, 30.0)]
    race = hotswap.Race(
        model, lanes, total_steps=600, judge=lambda m: -float(sum(p.square().sum() for p in m.parameters()))
    )
    for batch in minibatches(200):
        step(model, race, batch)
    assert race.winner is not None
    assert race.winner.optimizer is lanes[2]


def test_a_run_ends_with_the_model_that_the_judge_liked_best() -> None:
    """The judge likes the model less and less from the fifth judgement of the winner on."""
    model = made(perceptron)
    shown: list[tuple[float, list[Tensor]]] = []

    def judge(one: nn.Module) -> float:
        shown.append((abs(len(shown) - 5.0), values(one)))
        return shown[-1][0]

    race = hotswap.Race(model, [AdamW(model.parameters(), lr=0.01)], total_steps=400, judge=judge)
    batches = minibatches(400)
    for batch in batches[:-1]:
        step(model, race, batch)
    race.eval()
    liked = min(shown, key=lambda one: one[0])[1]
    assert equal(values(model), liked)
    race.train()
    assert not equal(values(model), liked)
    step(model, race, batches[-1])
    assert len(shown) == 20
    assert equal(values(model), liked)


@pytest.mark.parametrize("last", [math.nan, math.inf])
def test_a_run_whose_last_weights_are_not_finite_ends_with_the_model_that_the_judge_liked_best(last: float) -> None:
    model = made(perceptron)
    shown: list[list[Tensor]] = []

    def judge(one: nn.Module) -> float:
        shown.append(values(one))
        return float(len(shown) > 3)

    race = hotswap.Race(model, [AdamW(model.parameters(), lr=0.01)], total_steps=200, judge=judge)
    batches = minibatches(200)
    for batch in batches[:-1]:
        step(model, race, batch)
    race.step(last)
    assert equal(values(model), shown[2])


def test_what_a_judge_raises_leaves_the_winner_as_it_was_and_the_next_step_asks_again() -> None:
    model = made(perceptron)
    fails = [False]

    def judge(_: nn.Module) -> float:
        if fails[0]:
            raise OSError("the validation set is gone")
        return 1.0

    race = hotswap.Race(model, [AdamW(model.parameters(), lr=0.01)], total_steps=400, judge=judge)
    batches = minibatches(30)
    for batch in batches[:19]:
        step(model, race, batch)
    fails[0] = True
    with pytest.raises(OSError, match="is gone"):
        step(model, race, batches[19])
    fails[0] = False
    other = made(perceptron)
    alone = hotswap.Race(other, [AdamW(other.parameters(), lr=0.01)], total_steps=400, judge=judge)
    for batch in batches[:20]:
        step(other, alone, batch)
    assert equal(values(model), values(other))
    race.zero_grad()
    step(model, race, batches[20])
    step(other, alone, batches[20])
    assert equal(values(model), values(other))
