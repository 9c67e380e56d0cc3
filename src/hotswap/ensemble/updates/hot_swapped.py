"""Hot-swapped gradient descent: the same bandit, search and reward as the optimizer's, for R runs at a time.

A step reads one thing back from the device: whether every run's walk has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from hotswap.bandits import Bandit
from hotswap.ensemble.kernels import fused
from hotswap.ensemble.model import Gradient, Model
from hotswap.ensemble.updates.base import Update
from hotswap.rewards import LogReduction, Reward
from hotswap.searches import Search
from hotswap.searches.base import MOST_TRIALS, AnyWalk, refuse_endless
from hotswap.states import State, arrays_of, replaced

__all__ = ["HotSwapped"]

PREFIX = "bandit/"  # of the names of the bandit's fields in the state


class HotSwapped(Update):
    """Plain gradient descent whose rate a bandit proposes and a search settles at every step, for each run its own.

    Several arms are evaluated at once, those that the search foresees: first `block[0]` of them, and `block[1]` each
    time that some run has to go on. Arms to which a walk does not come are neither rewarded nor counted, so every run
    takes the decisions it would take alone, one trial after the other. A walk ends soon, or near the end of the grid
    where nothing helps: so the first block is small and the others are not.

    rates: the learning rate of each arm, large to small.
    seeds: one for each run, for a bandit that draws random numbers.
    """

    openings = frozenset({"begin"})

    def __init__(
        self,
        model: Model,
        theta: Tensor,
        rates: Sequence[float],
        bandit: Bandit,
        search: Search,
        reward: Reward | None = None,
        seeds: Sequence[int] | None = None,
        block: tuple[int, int] = (4, 8),
    ) -> None:
        super().__init__(model, theta, sums=("mean_lr", "trials"), arms=len(rates))
        runs, device = len(theta), theta.device
        self.bandit, self.search, self.reward = bandit, search, LogReduction() if reward is None else reward
        self.block = block
        self.rates = torch.tensor(rates, dtype=torch.float64, device=device)
        self.learned = _separate(bandit.begin(runs, len(rates), device, seeds))
        self.version = torch.full((runs,), bandit.state_version, dtype=torch.int64)
        self.reward_scale = self.reward.start(runs, device)
        self.before = torch.zeros(runs, dtype=torch.float64, device=device)
        self.walk = _separate(search.begin(self.before.long(), self.before, arms=len(rates)))
        self.at: Gradient | None = None
        self.all_done = torch.zeros((), dtype=torch.bool, pin_memory=theta.is_cuda)  # in the host's memory

    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """See `Update.parts`."""
        return {"begin": self._begin, "more": self._more, "end": self._end}

    def step(self, run: Callable[[str], None], number: int) -> None:
        """See `Update.step`."""
        run("begin")
        blocks = 1
        while not self._ended():
            if blocks >= MOST_TRIALS * len(self.rates):  # each block is one trial of every run, or more
                refuse_endless(self.search, blocks)
            run("more")
            blocks += 1
        run("end")

    def _ended(self) -> bool:
        """Whether every walk has: the answer was sent with the trials, and has only to be waited for."""
        if self.theta.is_cuda:
            torch.cuda.current_stream(self.theta.device).synchronize()
        return bool(self.all_done)

    def _begin(self, x: Tensor, y: Tensor) -> None:
        gradient = self.model.gradient(self.theta, x, y)
        self.at = self.model.before_trials(gradient, x)  # kept: the other pieces of the step read it where it lies
        fused(_open, self.theta)(
            self.bandit,
            self.search,
            self.reward,
            len(self.rates),
            self.learned,
            self.walk,
            self.reward_scale,
            self.before,
            gradient.loss,
        )
        self._try(self.block[0], x, y)

    def _more(self, x: Tensor, y: Tensor) -> None:
        self._try(self.block[1], x, y)

    def _try(self, count: int, x: Tensor, y: Tensor) -> None:
        assert self.at is not None  # a step begins before it goes on
        arms, rates = fused(_look_ahead, self.theta)(self.search, self.walk, self.rates, count)
        losses = self.model.trials(self.theta, self.at, rates, x, y)
        fused(_advance, self.theta)(
            self.bandit,
            self.search,
            self.reward,
            self.learned,
            self.walk,
            self.reward_scale,
            self.before,
            arms,
            losses,
            self.tally.sums["trials"],
        )
        self.all_done.copy_(self.walk.done.all(), non_blocking=True)

    def _end(self, x: Tensor, y: Tensor) -> None:
        assert self.at is not None  # a step begins before it ends
        tally = self.tally
        fused(_take, self.theta)(
            self.search,
            self.rates,
            self.walk,
            self.theta,
            self.at.direction,
            tally.sums["mean_lr"],
            tally.norm,
            tally.arms,
        )
        tally.norms += 1

    def state(self) -> dict[str, Tensor]:
        """See `Update.state`. `bandit_version` says which version of the bandit's fields these are, for each run."""
        learned = {PREFIX + name: tensor for name, tensor in arrays_of(self.learned).items()}
        return {
            "theta": self.theta,
            "reward_scale": self.reward_scale,
            "bandit_version": self.version,
            **learned,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Update.restore`; the bandit translates fields that another version of it has written."""
        saved = {name.removeprefix(PREFIX): tensors[name] for name in tensors if name.startswith(PREFIX)}
        version = int(tensors["bandit_version"][0]) if "bandit_version" in tensors else 1
        read = arrays_of(self.bandit.restored(self.learned, saved, version))
        others = {name: tensor for name, tensor in tensors.items() if not name.startswith(PREFIX)}
        own = {"bandit_version": self.version, **{PREFIX + name: tensor for name, tensor in read.items()}}
        super().restore({**others, **own})


# What each run decides in a step, for all runs. Results are written in place, so that each function becomes one kernel
# when it is compiled.


def _open(
    bandit: Bandit,
    search: Search,
    reward: Reward,
    arms: int,
    learned: State,
    walk: AnyWalk,
    reward_scale: Tensor,
    before: Tensor,
    loss: Tensor,
) -> None:
    """Propose an arm, and begin the walk."""
    loss = loss.double()
    proposal, state = bandit.propose(learned)
    begun = search.begin(proposal, loss, arms=arms)
    reward_scale.copy_(reward.follow(reward_scale, loss))
    before.copy_(loss)
    _store(learned, state)
    _store(walk, begun)


def _look_ahead(search: Search, walk: AnyWalk, rates: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The arms `(R, J)` to evaluate next, and their rates: the walk's own, then those that the search foresees."""
    foreseen = search.foresee(walk, count).clamp(0, len(rates) - 1)
    arms = torch.cat([walk.arm[:, None], foreseen[:, 1:]], dim=1)
    return arms, rates[arms]


def _advance(
    bandit: Bandit,
    search: Search,
    reward: Reward,
    learned: State,
    walk: AnyWalk,
    reward_scale: Tensor,
    before: Tensor,
    arms: Tensor,
    losses: Tensor,
    trials: Tensor,
) -> None:
    """Show the losses `(R, J)` of a block to the search one after the other, and teach the bandit what was tried.

    A run sees a loss only if it is that of the arm where its walk stands; otherwise it waits for the next block.
    """
    losses = losses.double()
    rewards = reward.grant(reward_scale[:, None], before[:, None], losses)
    now, tried = walk, []
    for number in range(losses.shape[1]):
        here = ~now.done & (arms[:, number] == now.arm)
        now = _where(here, search.observe(now, losses[:, number]), now)
        tried.append(here)
    happened = torch.stack(tried, dim=1)
    state = bandit.observe(learned, arms, rewards, happened)
    trials += happened.sum(1)
    _store(learned, state)
    _store(walk, now)


def _take(
    search: Search,
    rates: Tensor,
    walk: AnyWalk,
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


def _where(condition: Tensor, yes: AnyWalk, no: AnyWalk) -> AnyWalk:
    """For each run the fields of one walk or of the other."""
    other = arrays_of(no)
    return replaced(yes, {name: torch.where(condition, array, other[name]) for name, array in arrays_of(yes).items()})


def _store(kept: State, new: State) -> None:
    """Copy every field into the tensor that is kept for it."""
    values = arrays_of(new)
    for name, tensor in arrays_of(kept).items():
        tensor.copy_(values[name])


def _separate(state: State) -> State:
    """The same state with a storage of its own for every field."""
    return replaced(state, {name: tensor.clone() for name, tensor in arrays_of(state).items()})
