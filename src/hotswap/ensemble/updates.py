"""One algorithm for all runs of an ensemble: SGD, AdaDelta, or hot-swapped DUCB.

Every tensor that outlives a step is kept and written in place, so that a step can be captured once in a CUDA graph and
replayed. A step reads nothing back from the device, with one exception: DUCB asks whether every run's walk has ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hotswap.bandits import Bandit, BanditState
from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Gradient, Group, Model
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search, Walk

__all__ = ["AdaDelta", "Ducb", "Sgd", "Tally", "Update"]


@dataclass
class Tally:
    """Sums over the steps of an epoch, one value per run, float64."""

    rate: Tensor
    trials: Tensor
    norm: Tensor
    norms: Tensor
    """How many gradient norms were summed."""
    arms: Tensor
    """`(R, K)` how often each arm was taken; K = 0 for algorithms without arms."""

    @classmethod
    def zero(cls, runs: int, arms: int, device: torch.device) -> Tally:
        """Nothing counted yet."""
        rate, trials, norm, norms = torch.zeros(4, runs, dtype=torch.float64, device=device).unbind()
        return cls(rate, trials, norm, norms, torch.zeros(runs, arms, dtype=torch.float64, device=device))

    def clear(self) -> None:
        """Start a new epoch."""
        for tensor in vars(self).values():
            tensor.zero_()


class Update(ABC):
    """The parameters of R runs and what trains them."""

    def __init__(self, model: Model, theta: Tensor, arms: int = 0) -> None:
        self.model, self.theta = model, theta
        self.watched = True
        self.tally = Tally.zero(len(theta), arms, theta.device)

    @abstractmethod
    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """The pieces of a step, each of which can be captured in a graph of its own; called with a minibatch."""

    openings: frozenset[str]
    """The pieces with one of which a step begins: they are given the next minibatch."""

    @abstractmethod
    def step(self, run: Callable[[str], None], number: int) -> None:
        """One step: `run(name)` executes a piece. `number` counts the steps of an epoch."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides what the next steps do; the very tensors, so that copying into them restores."""

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """Called before the steps of epoch number `epoch`, counted from 0; `watched`: its tally will be read."""
        self.watched = watched
        self.tally.clear()


class Sgd(Update):
    """`v ← μv − αg; θ ← θ + v` with the rate inside the velocity, as in the paper's time, and α ← αη every epoch.

    Runs with equal momentum must stand together, those without any last (see `order`).
    """

    openings = frozenset({"step", "watched step"})
    NORM_EVERY = 8  # steps of a watched epoch; the update itself never has its gradient, so a norm costs another pass

    def __init__(
        self, model: Model, theta: Tensor, rates: Sequence[float], decays: Sequence[float], momenta: Sequence[float]
    ) -> None:
        super().__init__(model, theta)
        self.first = torch.tensor(rates, dtype=torch.float64)
        self.decays = torch.tensor(decays, dtype=torch.float64)
        self.groups = _groups(momenta)
        self.rates = torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)
        self.velocity = torch.zeros_like(theta[: sum(momentum != 0 for momentum in momenta)])

    @staticmethod
    def order(momenta: Sequence[float]) -> list[int]:
        """An order of the runs that puts equal momenta together, none last."""
        return sorted(range(len(momenta)), key=lambda run: (-momenta[run], run))

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """See `Update.begin_epoch`."""
        super().begin_epoch(epoch, watched=watched)
        self.rates.copy_(self.first * self.decays**epoch)

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"step": self._step, "watched step": self._watched_step}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("watched step" if self.watched and number % self.NORM_EVERY == 0 else "step")

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.tally.rate += self.rates
        self.model.descend(self.theta, self.velocity, self.rates, self.groups, x, y)

    def _watched_step(self, x: Tensor, y: Tensor) -> None:
        self.tally.norm += self.model.gradient_norm(self.theta, x, y)
        self.tally.norms += 1
        self._step(x, y)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        return {"theta": self.theta, "velocity": self.velocity}


def _groups(momenta: Sequence[float]) -> list[Group]:
    if list(momenta) != sorted(momenta, reverse=True):
        raise ValueError("runs must be ordered by momentum, large to small; see Sgd.order")
    groups, start = [], 0
    for end in range(1, len(momenta) + 1):
        if end == len(momenta) or momenta[end] != momenta[start]:
            groups.append(Group(slice(start, end), momenta[start]))
            start = end
    return groups


class AdaDelta(Update):
    """Zeiler's AdaDelta, as torch has it."""

    openings = frozenset({"step", "watched step"})

    def __init__(self, model: Model, theta: Tensor, rho: float = 0.95, eps: float = 1e-6, lr: float = 1.0) -> None:
        super().__init__(model, theta)
        self.rho, self.eps, self.lr = rho, eps, lr
        self.squares, self.moves = torch.zeros_like(theta), torch.zeros_like(theta)

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"step": self._step, "watched step": self._watched_step}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("watched step" if self.watched else "step")

    def _step(self, x: Tensor, y: Tensor) -> None:
        self._move(self.model.gradient(self.theta, x, y).direction)

    def _watched_step(self, x: Tensor, y: Tensor) -> None:
        direction = self.model.gradient(self.theta, x, y).direction
        self.tally.norm += torch.linalg.vector_norm(direction, dim=1)
        self.tally.norms += 1
        self._move(direction)

    def _move(self, direction: Tensor) -> None:
        fused(_adadelta, self.theta)(self.theta, self.squares, self.moves, direction, self.rho, self.eps, self.lr)

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        return {"theta": self.theta, "squares": self.squares, "moves": self.moves}


def _adadelta(
    theta: Tensor, squares: Tensor, moves: Tensor, direction: Tensor, rho: float, eps: float, lr: float
) -> None:
    """One step, in place."""
    squares.mul_(rho).addcmul_(direction, direction, value=1 - rho)
    move = (moves + eps).sqrt_().div_((squares + eps).sqrt_()).mul_(direction)
    moves.mul_(rho).addcmul_(move, move, value=1 - rho)
    theta.add_(move, alpha=-lr)


class Ducb(Update):
    """Hot-swapped SGD: the same bandit, search and reward as the optimizer's, for R runs at a time.

    Several arms are evaluated at once, from the one a run has come to: first `block[0]` of them, and `block[1]` each
    time that some run has to go on. What the search would not have tried is neither rewarded nor counted, so every run
    takes the decisions it would take alone, one trial after the other. A walk ends soon, or near the end of the grid
    where nothing helps: so the first block is small and the others are not.
    """

    openings = frozenset({"begin"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rates: Sequence[float],
        bandit: Bandit,
        search: Search,
        block: tuple[int, int] = (4, 8),
    ) -> None:
        super().__init__(model, theta, arms=len(rates))
        self.bandit, self.search, self.reward = bandit, search, LogReduction()
        self.rates = torch.tensor(rates, dtype=torch.float64, device=theta.device)
        self.first, self.further = (torch.arange(size, device=theta.device) for size in block)
        self.learned = bandit.start(len(theta), len(rates), theta.device)
        self.at: Gradient | None = None
        blank = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
        self.walk = search.begin(blank.long(), blank, arms=len(rates))
        self.walk = Walk(*(tensor.clone() for tensor in self.walk))  # no two of them the same storage
        self.all_done = torch.zeros((), dtype=torch.bool, pin_memory=theta.is_cuda)  # the host's own

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"begin": self._begin, "more": self._more, "end": self._end}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("begin")
        while not self._ended():
            run("more")
        run("end")

    def _ended(self) -> bool:
        """Whether every walk has: the answer was sent with the trials, and has only to be waited for."""
        if self.theta.is_cuda:
            torch.cuda.current_stream(self.theta.device).synchronize()
        return bool(self.all_done)

    def _begin(self, x: Tensor, y: Tensor) -> None:
        gradient = self.model.gradient(self.theta, x, y)
        self.at = self.model.before_trials(gradient, x)  # kept: the other pieces of the step read it where it lies
        fused(_open, self.theta)(self.bandit, self.search, len(self.rates), self.learned, self.walk, gradient.loss)
        self._try(self.first, x, y)

    def _more(self, x: Tensor, y: Tensor) -> None:
        self._try(self.further, x, y)

    def _try(self, ahead: Tensor, x: Tensor, y: Tensor) -> None:
        assert self.at is not None  # a step begins before it goes on
        arms = torch.minimum(self.walk.arm[:, None] + ahead, self.walk.last[:, None])
        losses = self.model.trials(self.theta, self.at, self.rates[arms], x, y)
        fused(_advance, self.theta)(
            self.bandit, self.search, self.reward, self.learned, self.walk, arms, losses, self.tally.trials
        )
        self.all_done.copy_(self.walk.done.all(), non_blocking=True)

    def _end(self, x: Tensor, y: Tensor) -> None:
        assert self.at is not None  # a step begins before it ends
        tally = self.tally
        fused(_take, self.theta)(
            self.search, self.rates, self.walk, self.theta, self.at.direction, tally.rate, tally.norm, tally.arms
        )
        tally.norms += 1

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`."""
        return {"theta": self.theta, **self.learned._asdict()}


# What a run decides in a step, for all of them: written in place, so that each becomes one kernel when compiled.


def _open(bandit: Bandit, search: Search, arms: int, learned: BanditState, walk: Walk, loss: Tensor) -> None:
    """Propose, and begin the walk."""
    proposal, state = bandit.propose(learned)
    begun = search.begin(proposal, loss.double(), arms=arms)
    _store(learned, state)
    _store(walk, begun)


def _advance(
    bandit: Bandit,
    search: Search,
    reward: Reward,
    learned: BanditState,
    walk: Walk,
    arms: Tensor,
    losses: Tensor,
    trials: Tensor,
) -> None:
    """Show the losses `(R, J)` of a block to the search one after the other, and teach the bandit what was tried."""
    losses = losses.double()
    before = walk.loss_before[:, None]
    rewards = reward.grant(before, before, losses)
    now, tried = walk, []
    for number in range(losses.shape[1]):
        tried.append(~now.done)
        now = search.observe(now, losses[:, number])
    happened = torch.stack(tried, dim=1)
    state = bandit.observe(learned, arms, rewards, happened)
    trials += happened.sum(1)
    _store(learned, state)
    _store(walk, now)


def _take(
    search: Search,
    rates: Tensor,
    walk: Walk,
    theta: Tensor,
    direction: Tensor,
    rate_sum: Tensor,
    norm_sum: Tensor,
    arm_counts: Tensor,
) -> None:
    """Move every run by the arm it has chosen, or not at all."""
    chosen = search.choose(walk)
    moved = chosen >= 0
    rate = torch.where(moved, rates[chosen.clamp(min=0)], 0.0)
    theta.sub_(torch.where(moved[:, None], rate.to(theta.dtype)[:, None] * direction, 0.0))
    rate_sum += rate
    norm_sum += torch.linalg.vector_norm(direction, dim=1)
    arm_counts += chosen[:, None] == torch.arange(len(rates), device=theta.device)


def _store(kept: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> None:
    for old, value in zip(kept, new, strict=True):
        old.copy_(value)
