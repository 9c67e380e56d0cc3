"""What a hot-swapped optimizer remembers, and its checkpoints and copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from hotswap.arms import Arms
from hotswap.arrays import Array
from hotswap.bandits import Bandit
from hotswap.optim.adapters import Closure
from hotswap.optim.adaptive import TopWatch
from hotswap.optim.guarding import Guarding
from hotswap.optim.probing import ClosureChecks, Probe
from hotswap.optim.probing.agreement import ProcessGroup
from hotswap.optim.probing.gradients import Clipping, LossScale
from hotswap.optim.probing.moves import move_for
from hotswap.optim.records import Brief, StepRecord
from hotswap.optim.setters import Setters
from hotswap.optim.state_dict import OwnState, bandit_state, described, load_base, pack, unpack
from hotswap.optim.untried import NO_STEPS, Told, Untried
from hotswap.optim.user_warnings import warn_of_other_parts
from hotswap.optim.wrapper import Wrapper
from hotswap.pacing import Pace, PaceState
from hotswap.rewards import Reward
from hotswap.searches import Search
from hotswap.states import arrays_of

__all__ = ["Memory", "Proposal", "WrappingOptimizer"]


class Proposal(NamedTuple):
    """The arm that a bandit proposes for the next step, and its state after proposing."""

    bandit: Bandit
    arm: int
    state: Any


@dataclass
class Memory:
    """What hot swapping remembers from step to step, beside the base optimizer's state.

    It is one object that changes in place: Lightning's wrapper around an optimizer has copies of its attributes, and
    what methods of the wrapper change must change for both.
    """

    bandit: Any
    """The bandit's state, whatever fields it has."""
    reward_scale: float
    in_force: int
    """The arm that a step without a search applies."""
    searched: bool = False
    """Whether there was a search, or an arm was taken without one."""
    untried: Untried | None = None
    """The arm that the step before took without trying it: the next loss says what it was worth."""
    pace: PaceState = NO_STEPS
    """What decides whether the next step searches; as it is where every step does."""
    missed: list[Told | None] = field(default_factory=list)
    """What the bandit has not been told yet: an entry for each step that did not need its proposal, see `catch_up`."""
    top: TopWatch | None = None
    """Whether the rate sits at the top of its grid; None where nobody looks, or has looked enough."""
    last_step: StepRecord | Brief | None = None
    proposal: Proposal | None = None
    """For the next step, made when the bandit has just learned."""
    search_with: tuple[Closure, Tensor | float] | None = None
    """What the next step without arguments searches with: a trial closure, and its loss at the start point."""

    def catch_up(self, bandit: Bandit, reward: Reward) -> None:
        """Let the bandit learn what it has missed.

        A step that applies the values in force needs no proposal, only that time passes for the bandit and that it is
        told what the arm was worth. Done for many steps together, that takes a fraction of what it takes in each.
        """
        if self.missed:
            for told in self.missed:
                if told is not None:
                    self.bandit = bandit.observe(self.bandit, [[told.arm]], [[told.reward(reward)]])
                self.bandit = bandit.propose(self.bandit)[1]
            self.missed, self.proposal = [], None


class WrappingOptimizer(Wrapper):
    """Parameter groups and state are the base's; checkpoints and copies have what hot swapping adds."""

    arms: Arms
    bandit: Bandit
    search: Search
    reward: Reward

    _linear: bool | None
    _seed: int
    _module: nn.Module | None
    _process_group: ProcessGroup
    _clipping: Clipping
    _loss_scale: LossScale | None
    _checks: ClosureChecks
    _pace: Pace
    _setters: Setters
    _guarding: Guarding | None
    _memory: Memory
    _probe: Probe

    def _make_probe(self, initial_lr: float) -> Probe:
        return Probe(
            self.base,
            move_for(self.base, self.arms, initial_lr, self._linear, self._setters.names),
            module=self._module,
            process_group=self._process_group,
            clipping=self._clipping,
            loss_scale=self._loss_scale,
            checks=self._checks,
            setters=self._setters,
        )

    @property
    def last_step(self) -> StepRecord | None:
        """What the latest step did."""
        memory = self._memory
        if isinstance(memory.last_step, Brief):
            memory.last_step = memory.last_step.written(self.arms)
        return memory.last_step

    @property
    def rollbacks(self) -> int:
        """How often the guard has gone back to its snapshot."""
        return 0 if self._guarding is None else self._guarding.rollbacks

    @property
    def _searches_always(self) -> bool:
        """Whether every step has trials."""
        return self._pace.always and self.search.tries

    @property
    def check_closure(self) -> bool:
        """Whether the closure is checked, in some searches, for giving the same loss twice."""
        return self._checks.enabled

    @check_closure.setter
    def check_closure(self, check: bool) -> None:
        self._checks.enabled = check

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, str]:
        parts: dict[str, object] = {"bandit": self.bandit, "search": self.search, "reward": self.reward}
        parts |= {"clip_norm": self._clipping.norm, "clip_value": self._clipping.value}
        if not self._pace.always:
            parts["pace"] = self._pace
        if self._guarding is not None:
            parts["guard"] = self._guarding.guard
        return described(parts)

    def _fresh_bandit_state(self) -> Any:
        return self.bandit.begin(1, len(self.arms), seeds=[self._seed])

    def _packed_state(self) -> dict[str, Any]:
        self._memory.catch_up(self.bandit, self.reward)
        own = OwnState(
            bandit=arrays_of(self._memory.bandit),
            bandit_kind=type(self.bandit).__name__,
            bandit_version=self.bandit.state_version,
            reward_scale=self._memory.reward_scale,
            in_force=self._memory.in_force,
            initial_lr=self._probe.move.initial_lr,
            masters=self._probe.move.masters.read(self._probe.parameters()),
            loss_scale=None if self._loss_scale is None else (self._loss_scale.value, self._loss_scale.good),
            untried=self._memory.untried,
            pace=None if self._searches_always else self._memory.pace,
            guard=None if self._guarding is None else self._guarding.packed(self._probe.parameters()),
            parts=self._parts(),
        )
        return pack(self.base.state_dict(), self.arms, own)

    def _load_packed(self, state_dict: dict[str, Any]) -> None:
        plain, own = unpack(state_dict, self.arms, self.base, self.reward)
        fresh = self._fresh_bandit_state()
        learned = bandit_state(own, self.bandit, fresh, len(self.arms))
        warn_of_other_parts(own.parts, self._parts())
        self._setters.to(own.in_force)  # functions of the user's, which set back what they have set where one raises
        try:
            load_base(self.base, plain)
        except BaseException:
            self._setters.back()
            raise
        memory, move = self._memory, self._probe.move
        memory.bandit, memory.reward_scale, memory.in_force = learned, own.reward_scale, own.in_force
        memory.searched = not _equal(learned, fresh)
        memory.untried, memory.missed = own.untried, []
        other_pace = own.parts.get("pace") != self._parts().get("pace")  # it begins with a search
        memory.pace = NO_STEPS if own.pace is None or other_pace else own.pace
        self._setters.keep()
        if self._guarding is not None:
            self._guarding.load(own.guard)
        memory.proposal = memory.last_step = None
        move.initial_lr = own.initial_lr
        move.masters.write(self._probe.parameters(), own.masters)
        if self._loss_scale is not None and own.loss_scale is not None:
            self._loss_scale.value, self._loss_scale.good = own.loss_scale

    # --- copies -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        self._memory.catch_up(self.bandit, self.reward)
        kept = ("base", "arms", "bandit", "search", "reward")
        settings = ("_linear", "_seed", "_module", "_process_group", "_clipping", "_loss_scale", "_checks", "_pace")
        parts = ("_setters", "_guarding")
        move = self._probe.move
        return {name: self.__dict__[name] for name in (*kept, *settings, *parts)} | {
            "_memory": replace(self._memory, proposal=None, search_with=None),
            "_initial_lr": move.initial_lr,
            "_masters": move.masters.read(self._probe.parameters()),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        initial_lr, masters = own.pop("_initial_lr"), own.pop("_masters")
        self.__dict__.update(own)
        super().__setstate__({"defaults": self.base.defaults})  # groups and state are the base's
        self._probe = self._make_probe(initial_lr)
        self._probe.move.masters.write(self._probe.parameters(), masters)


def _equal(state: Any, other: Any) -> bool:
    """Whether two states of a bandit have the same values."""
    arrays: dict[str, Array] = arrays_of(other)
    return all(bool((array == arrays[name]).all()) for name, array in arrays_of(state).items())
