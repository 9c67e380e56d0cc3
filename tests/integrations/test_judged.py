"""Programs whose training loss means little: each races with a judge, resumes exactly, and finds the right lane."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.optim import SGD, Adam

import hotswap
from tests.integrations.racing import check_resumes

STEPS = 300
BAD, GOOD = 1e-5, 2e-2


def network(inputs: int, outputs: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


class Gan:
    """Numbers around 3 with a deviation of 0.5. The generator races; the discriminator belongs to its lanes."""

    GOOD = 3e-3  # larger rates swing
    NOISE = torch.randn(256, 4, generator=torch.Generator().manual_seed(5))

    def __init__(self) -> None:
        generator, discriminator = network(4, 1), network(1, 1, seed=1)
        self.net = nn.ModuleList([generator, discriminator])
        lanes = [Adam(generator.parameters(), lr=rate) for rate in (BAD, self.GOOD)]
        self.race = hotswap.Race(
            generator, lanes, total_steps=STEPS, judge=self.distance, also=discriminator.parameters()
        )
        self.others = [Adam(discriminator.parameters(), lr=1e-2)]

    def distance(self, generator: nn.Module) -> float:
        made = generator(self.NOISE).detach()
        return float((made.mean() - 3).abs() + (made.std() - 0.5).abs())

    def run(self, begin: int, end: int) -> None:
        generator, discriminator = self.net
        for _ in range(begin, end):
            real, made = 3 + torch.randn(32, 1) / 2, generator(torch.randn(32, 4))
            self.others[0].zero_grad()
            (said(discriminator(real), 1.0) + said(discriminator(made.detach()), 0.0)).backward()
            self.others[0].step()
            loss = said(discriminator(made), 1.0)
            self.race.zero_grad()
            loss.backward()
            self.race.step(loss)


def said(scores: Tensor, truth: float) -> Tensor:
    return binary_cross_entropy_with_logits(scores, torch.full_like(scores, truth))


def test_a_gan_whose_generator_races() -> None:
    done: Any = check_resumes(Gan, (25, 40, 170), STEPS)
    assert done.race.winner.rates == [Gan.GOOD]
    assert done.distance(done.net[0]) < 0.5


class Policy:
    """A policy gradient: an action is right in each of six situations."""

    def __init__(self) -> None:
        self.net = network(6, 6)
        lanes = [Adam(self.net.parameters(), lr=rate) for rate in (BAD, GOOD)]
        self.race = hotswap.Race(self.net, lanes, total_steps=STEPS, judge=self.failures)
        self.others: list[Any] = []

    @staticmethod
    def failures(policy: nn.Module) -> float:
        return -float(policy(torch.eye(6)).detach().softmax(1).diagonal().mean())

    def run(self, begin: int, end: int) -> None:
        for _ in range(begin, end):
            situations = torch.randint(6, (32,))
            chances = Categorical(logits=self.net(torch.eye(6)[situations]))
            actions = chances.sample()
            rewards = (actions == situations).float()
            loss = -(chances.log_prob(actions) * (rewards - rewards.mean())).mean()
            self.race.zero_grad()
            loss.backward()
            self.race.step(loss)


def test_a_policy_gradient() -> None:
    done: Any = check_resumes(Policy, (25, 40, 170), STEPS)
    assert done.race.winner.rates == [GOOD]
    assert done.failures(done.net) < -0.8


class FineTuning:
    """Twenty samples with some wrong labels: a large rate learns them by heart, a small one does not."""

    LARGE, SMALL, STEPS = 1.0, 1e-3, 400

    def __init__(self, *, judged: bool = True) -> None:
        self.net = nn.Linear(30, 3)
        with torch.no_grad():  # what it has learned before
            self.net.weight.copy_(2 * torch.eye(3, 30))
            self.net.bias.zero_()
        lanes = [SGD(self.net.parameters(), lr=rate) for rate in (self.SMALL, self.LARGE)]
        judge = self.validation_loss if judged else None
        self.race = hotswap.Race(self.net, lanes, total_steps=self.STEPS, judge=judge)
        self.others: list[Any] = []
        numbers = torch.Generator().manual_seed(3)
        self.few = torch.randn(20, 30, generator=numbers)
        self.labels = self.few[:, :3].argmax(1)
        self.labels[:6] = (self.labels[:6] + 1) % 3
        self.held_out = torch.randn(500, 30, generator=numbers)

    def validation_loss(self, net: nn.Module) -> Tensor:
        return cross_entropy(net(self.held_out), self.held_out[:, :3].argmax(1))

    def run(self, begin: int, end: int) -> None:
        for _ in range(begin, end):
            loss = cross_entropy(self.net(self.few), self.labels)
            self.race.zero_grad()
            loss.backward()
            self.race.step(loss)


def test_fine_tuning_on_little_data() -> None:
    done: Any = check_resumes(FineTuning, (25, 60, 170), FineTuning.STEPS)
    assert done.race.winner.rates == [FineTuning.SMALL]
    misled = FineTuning(judged=False)
    misled.run(0, FineTuning.STEPS)
    assert misled.race.winner is not None
    assert misled.race.winner.rates == [FineTuning.LARGE]
    assert misled.validation_loss(misled.net).item() > 1.5 * done.validation_loss(done.net).item()
