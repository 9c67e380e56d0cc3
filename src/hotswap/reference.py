"""Algorithms 1 to 3 transcribed with NumPy, line by line, for one model: the oracle of the tests.

It shares no code with the rest of the package and is imported by nothing else: it exists to disagree. Lines are those
of the paper's appendix; rules are those by which this project fills in what the paper leaves open:

 1. sweep: while t < maxIndex, step t starts at arm t, nothing is discounted;
 2. select: afterwards discount, then the largest index, ties to the larger rate; untried is +inf; log(n) >= 0;
 3. the loss at the start point is evaluated once, together with the gradient;
 4. every arm tried is rewarded; the walk ends when something beat the start and the loss rises again;
 5. if nothing beat the start, nothing moves ("start" and "smallest" are the other readings);
 6. the pseudo-code's search is the default, the prose's (`first_decrease`) an option;
 7. log(f + 1e-15); a loss that is not finite counts as +inf and earns -100; rewards stay within +-100;
 8. a negative loss has no logarithm: an error;
 9. the first arms are catastrophically large, so rule 7 is on the main path;
10. with headroom h a walk starts h arms above the proposal; one arm is legal, no exploration too.

Other searches than the paper's are functions at the end: `armijo`, `both_ways`, `no_search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ducb", "Step", "Trial", "armijo", "both_ways", "hot_swap", "hot_swap_ducb", "no_search"]

Array = NDArray[np.float64]
Objective = Callable[[Array, object], float]
Gradient = Callable[[Array, object], Array]
Trial = Callable[[int], tuple[float, float]]
"""Tries an arm. Returns the loss there, +inf if it is not finite, and by how much it was expected to fall."""
OtherSearch = Callable[[Trial, float, int, int], "int | None"]
"""Takes an arm, or none: from trials, the loss at the start point, the proposal and the number of arms."""


def hot_swap(  # Algorithm 1: general hot swapped optimization
    theta: Array,
    batches: Iterable[object],
    suggest: Callable[[], float],
    update: Callable[[Array, object, float], Array],
    observe: Callable[[float, Array, Array, object], None],
) -> Array:
    """Algorithm 1. `batches` ends where the paper's "while not converged" does."""
    for batch in batches:  # lines 1-2
        alpha = suggest()  # line 3
        before, theta = theta, update(theta, batch, alpha)  # line 4
        observe(alpha, before, theta, batch)  # line 5
    return theta


@dataclass(frozen=True)
class Step:
    """The record of one pass through Algorithm 2's loop."""

    start: int
    trials: list[tuple[int, float]]
    arm: int | None
    theta: Array


@dataclass
class Ducb:
    """The state and settings of Algorithms 2 and 3."""

    alphas: Array
    gamma: float = 0.99
    explore_const: float = 1e-8
    headroom: int = 0
    when_stuck: str = "stay"
    first_decrease: bool = False
    other_search: OtherSearch | None = None
    t: int = -1  # Algorithm 2, line 4
    rewards: Array = field(init=False)
    counts: Array = field(init=False)

    def __post_init__(self) -> None:
        self.max_index = len(self.alphas) - 1  # Algorithm 2, line 1
        self.rewards = np.zeros(len(self.alphas))  # line 2
        self.counts = np.zeros(len(self.alphas))  # line 3

    def initial_alpha_index(self) -> int:
        """InitialAlphaIndex."""
        if self.t < self.max_index:
            return self.t
        return self.ducb_suggested_index()

    def ducb_suggested_index(self) -> int:
        """GetDucbSuggestedIndex."""
        self.rewards = self.gamma * self.rewards
        self.counts = self.gamma * self.counts
        return int(np.argmax(self.ucbs()))

    def ucbs(self) -> Array:
        """Means plus confidence intervals, one arm after the other."""
        n = self.counts.sum()
        log_n = max(math.log(n), 0.0) if n > 0 else 0.0
        ucbs = np.full(len(self.alphas), math.inf)
        for k in range(len(self.alphas)):
            if self.counts[k] > 1e-290:  # below that, what is left of the sums is rounding: as good as untried
                mean = self.rewards[k] / self.counts[k]
                ucbs[k] = mean + math.sqrt(self.explore_const * log_n / self.counts[k])
        return ucbs

    def grant_reward(self, index: int, f_start: float, f_current: float) -> None:
        """GrantReward."""
        if math.isfinite(f_current):
            reward = math.log(f_start + 1e-15) - math.log(f_current + 1e-15)
            reward = min(max(reward, -100.0), 100.0)
        else:
            reward = -100.0
        self.rewards[index] += reward
        self.counts[index] += 1

    def backtracking_line_search_with_rewards(
        self, f: Objective, g: Gradient, batch: object, theta: Array, proposal: int
    ) -> Step:
        """BacktrackingLineSearchWithRewards."""
        start_index = max(0, proposal - self.headroom)
        f_start, gradient = f(theta, batch), g(theta, batch)
        if f_start < 0:
            raise ValueError("the logarithm of a negative loss means nothing")
        f_current = f_start
        f_best = f_start
        best: int | None = None
        have_found_better_than_start = False
        trials: list[tuple[int, float]] = []
        for index in range(start_index, self.max_index + 1):
            f_prev = f_current
            raw = f(theta - self.alphas[index] * gradient, batch)  # ObjectiveAtAlpha
            trials.append((index, raw))
            f_current = raw if math.isfinite(raw) else math.inf
            self.grant_reward(index, f_start, f_current)
            if f_current < f_best:
                f_best = f_current
                best = index
                have_found_better_than_start = True
            if have_found_better_than_start and (self.first_decrease or f_current > f_prev):
                break
        if best is None and self.when_stuck != "stay":
            index, loss = trials[0] if self.when_stuck == "start" else trials[-1]
            best = index if math.isfinite(loss) else None
        if best is not None:
            theta = theta - self.alphas[best] * gradient
        return Step(start_index, trials, best, theta)

    def step(self, f: Objective, g: Gradient, batch: object, theta: Array) -> Step:
        """One pass through Algorithm 2's loop."""
        self.t += 1
        proposal = self.initial_alpha_index()
        if self.other_search is not None:
            return self.other_search_with_rewards(self.other_search, f, g, batch, theta, proposal)
        return self.backtracking_line_search_with_rewards(f, g, batch, theta, proposal)

    def other_search_with_rewards(
        self, search: OtherSearch, f: Objective, g: Gradient, batch: object, theta: Array, proposal: int
    ) -> Step:
        """Another search in the place of the paper's: every arm that it tries is rewarded."""
        f_start, gradient = f(theta, batch), g(theta, batch)
        trials: list[tuple[int, float]] = []

        def trial(index: int) -> tuple[float, float]:
            there = theta - self.alphas[index] * gradient
            raw = f(there, batch)
            trials.append((index, raw))
            f_current = raw if math.isfinite(raw) else math.inf
            self.grant_reward(index, f_start, f_current)
            return f_current, float(np.sum(gradient * (theta - there)))

        arm = search(trial, f_start, proposal, len(self.alphas))
        if arm is not None:
            theta = theta - self.alphas[arm] * gradient
        return Step(trials[0][0] if trials else 0, trials, arm, theta)


def hot_swap_ducb(f: Objective, g: Gradient, theta: Array, batches: Iterable[object], model: Ducb) -> list[Step]:
    """Algorithm 2: hot swapped stochastic optimization with a DUCB model."""
    steps: list[Step] = []
    for batch in batches:
        steps.append(model.step(f, g, batch, theta))
        theta = steps[-1].theta
    return steps


def armijo(
    trial: Trial,
    f_start: float,
    proposal: int,
    arms: int,
    *,
    slope: float = 0.1,
    headroom: int = 0,
    when_stuck: str = "stay",
    max_trials: int | None = None,
) -> int | None:
    """The first arm, from the proposal to smaller rates, that lowers the loss by `slope` times what was expected."""
    start = max(0, proposal - headroom)
    end = arms if max_trials is None else min(arms, start + max_trials)
    losses: dict[int, float] = {}
    for index in range(start, end):
        losses[index], expected = trial(index)
        if losses[index] < f_start and f_start - losses[index] >= slope * expected:
            return index
    stuck = {"stay": None, "start": start, "smallest": end - 1}[when_stuck]
    return stuck if stuck is not None and math.isfinite(losses[stuck]) else None


def both_ways(trial: Trial, f_start: float, proposal: int, arms: int, *, max_trials: int | None = None) -> int | None:
    """Upwards from the proposal while that helps; where it does not help even once, downwards."""
    losses: dict[int, float] = {}

    def better(index: int, beside: float) -> bool:
        losses[index] = trial(index)[0]
        return losses[index] < beside

    def may_try(index: int) -> bool:
        return 0 <= index < arms and (max_trials is None or len(losses) < max_trials)

    if better(proposal, f_start):
        index = proposal - 1
        while may_try(index) and better(index, losses[index + 1]):
            index -= 1
    climbed = proposal - 1 in losses and losses[proposal - 1] < losses[proposal]
    index = proposal + 1
    while not climbed and may_try(index):
        worse = not better(index, losses[index - 1]) and losses[index] > losses[index - 1]
        if worse and min(losses.values()) < f_start:
            break
        index += 1
    best = min(losses, key=lambda arm: losses[arm])  # of equal losses, the arm that was tried first
    return best if losses[best] < f_start else None


def no_search(trial: Trial, f_start: float, proposal: int, arms: int) -> int | None:
    """The proposal, whatever it does."""
    return proposal
