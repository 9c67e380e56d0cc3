"""What every bandit must do, and that `check_bandit` notices one that does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotswap
from hotswap import (
    UCB1,
    Bandit,
    CheckpointError,
    DiscountedUCB,
    Exp3S,
    FactoredBandit,
    FixedArm,
    SettingError,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)
from hotswap.arrays import Array, namespace
from hotswap.bandits import BANDITS, BanditState
from hotswap.states import arrays_of, replaced
from hotswap.testing import check_bandit
from tests.bandits.bandits import EpsilonGreedy, EpsilonGreedyData, InTurn, WithLatest

GOOD: list[Bandit] = [
    DiscountedUCB(discount=0.3, exploration=0.0),
    WithLatest(),
    EpsilonGreedyData(epsilon=0.3),
    UCB1(exploration=2.0),
    SlidingWindowUCB(window=30, exploration=1.0),
    ThompsonSampling(discount=0.9, prior=50.0, noise=1.0, bound=100.0),
    Exp3S(exploration=0.3, share=0.0, memory=0.0),
    hotswap.EpsilonGreedy(epsilon=0.2, discount=1.0),
    SmoothedUCB(width=0.05, exploration=1.0, bound=100.0),
    SmoothedUCB(row=1),
]


FACTORED: list[Bandit] = [
    FactoredBandit(DiscountedUCB(), (2, 3)),
    FactoredBandit((EpsilonGreedyData(), Exp3S()), (3, 2)),
    FactoredBandit((FactoredBandit(UCB1(), (1, 2)), SmoothedUCB()), (2, 3)),
]


@pytest.mark.parametrize("name", BANDITS)
def test_every_registered_bandit(name: str) -> None:
    if name == "fixed_arm":
        check_bandit(FixedArm(arm=0), learns=False)
    else:
        check_bandit(BANDITS[name]())


@pytest.mark.parametrize("bandit", FACTORED, ids=repr)
def test_factored_bandits(bandit: Bandit) -> None:
    check_bandit(bandit, any_arms=False)


@given(
    bandit=st.sampled_from([*GOOD, *FACTORED, *(BANDITS[name]() for name in BANDITS if name != "fixed_arm")]),
    rewards=st.lists(st.tuples(*[st.floats(-100, 100)] * 3), min_size=1, max_size=30),
)
@settings(max_examples=80)
def test_numbers_stay_numbers_whatever_is_paid(bandit: Bandit, rewards: list[tuple[float, ...]]) -> None:
    state = bandit.begin(1, 6)
    for paid in rewards * 2:
        arm, state = bandit.propose(state)
        assert 0 <= arm[0] < 6
        state = bandit.observe(state, [[arm[0], (arm[0] + 1) % 6, arm[0]]], [paid])
        assert not any(np.isnan(array).any() for array in arrays_of(state).values())
        assert not np.isnan(bandit.index(state)).any()
        assert np.isfinite(bandit.means(state)).all()


def test_bandits_that_cannot_learn() -> None:
    check_bandit(SlidingWindowUCB(window=2), learns=False)
    check_bandit(FixedArm(arm=5), learns=False, any_arms=False)


@pytest.mark.parametrize("bandit", GOOD, ids=repr)
def test_bandits_with_states_of_their_own(bandit: Bandit) -> None:
    check_bandit(bandit)


@dataclass(frozen=True)
class ChangesItsState(DiscountedUCB):
    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        after = super().observe(state, arm, reward, tried)
        state.counts[:] = after.counts
        return after


@dataclass(frozen=True)
class CouplesRuns(DiscountedUCB):
    def propose(self, state: Any) -> tuple[Array, Any]:
        arm, after = super().propose(state)
        return arm * 0 + arm.max(), after


@dataclass(frozen=True)
class LearnsFromTheOthers(DiscountedUCB):
    """Its proposals hardly show it, its sums do."""

    def propose(self, state: Any) -> tuple[Array, Any]:
        arm, after = super().propose(state)
        return arm, replaced(after, rewards=after.rewards + 1e-6 * after.rewards.sum())


@dataclass(frozen=True)
class GeneratorOutside(DiscountedUCB):
    generator: Any = field(default_factory=lambda: np.random.default_rng(0), hash=False)

    def propose(self, state: Any) -> tuple[Array, Any]:
        arm, after = super().propose(state)
        return arm * 0 + int(self.generator.integers(state.counts.shape[1])), after


@dataclass(frozen=True)
class CountsWhatDidNotHappen(DiscountedUCB):
    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        return replaced(super().observe(state, arm, reward, tried), step=state.step + 1)


@dataclass(frozen=True)
class CountsSteps(DiscountedUCB):
    """One more for every call in which something was tried, as if that were a step."""

    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        ones = [[True] * len(row) for row in arm] if tried is None else tried
        stepped = state.step + np.any(np.asarray(ones), axis=1)
        return replaced(super().observe(state, arm, reward, tried), step=stepped)


@dataclass(frozen=True)
class ProposesNoArm(DiscountedUCB):
    def propose(self, state: Any) -> tuple[Array, Any]:
        arm, after = super().propose(state)
        return arm + 1, after


@dataclass(frozen=True)
class ChangesTypes(DiscountedUCB):
    def propose(self, state: Any) -> tuple[Array, Any]:
        xp = namespace(state.counts)
        arm, after = super().propose(state)
        return arm, replaced(after, counts=xp.asarray(after.counts, dtype=xp.float32))


@dataclass(frozen=True)
class DividesByZero(DiscountedUCB):
    def means(self, state: Any) -> Array:
        xp = namespace(state.counts)
        with np.errstate(invalid="ignore"):
            return xp.where(state.step[:, None] > 20, state.rewards * 0 / (state.counts * 0), state.rewards)


@dataclass(frozen=True)
class AlwaysTheFirst(DiscountedUCB):
    def propose(self, state: Any) -> tuple[Array, Any]:
        arm, after = super().propose(state)
        return arm * 0, after


@dataclass(frozen=True)
class OnlyArrays(DiscountedUCB):
    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        return super().observe(state, arm[:, :], reward, tried)


@dataclass(frozen=True)
class KeepsAList(WithLatest):
    def start(self, runs: int, arms: int, device: Any = None) -> Any:
        state: Any = super().start(runs, arms, device)
        return replaced(state, latest=[0] * runs)


@dataclass(frozen=True)
class ProposesWithoutState(DiscountedUCB):
    def propose(self, state: Any) -> Any:
        return super().propose(state)[0]


@dataclass(frozen=True)
class UnsureOfEveryArm(DiscountedUCB):
    def unsure(self, state: Any) -> Array:
        return state.counts < 5


@dataclass
class Thawed(DiscountedUCB.__base__):  # type: ignore[name-defined, misc]  # a frozen dataclass has no others below it
    rate: float = 0.1

    def propose(self, state: Any) -> tuple[Array, Any]:
        return state.step, state

    def index(self, state: Any) -> Array:
        return state.counts


@pytest.mark.parametrize(
    ("bandit", "sentence"),
    [
        (ChangesItsState(), r"ChangesItsState: observe\(\) changes the state"),
        (CouplesRuns(), "CouplesRuns: a run depends on those beside it"),
        (LearnsFromTheOthers(), "a run depends on those beside it"),
        (GeneratorOutside(), "from the same state in NumPy; all that it depends on, random numbers too"),
        (CountsWhatDidNotHappen(), r"learns from trials that did not happen \(tried=False\)"),
        (CountsSteps(), "learns something else from three trials one by one than from all at once in NumPy"),
        (ProposesNoArm(), r"gave the arms \[.*\], but they are numbered 0 to"),
        (ChangesTypes(), "types of its state change in NumPy"),
        (DividesByZero(), r"means\(\) became NaN"),
        (AlwaysTheFirst(), "the only arm that pays in 0% of its later steps in NumPy; pass learns=False"),
        (Thawed(), "its settings can be changed"),
        (UnsureOfEveryArm(), r"unsure\(\) must be true or false for each run"),
        (KeepsAList(), "every field of a state must be an array .*, but latest is of type list"),
        (ProposesWithoutState(), r"ProposesWithoutState: propose\(\) must return two things"),
        (DiscountedUCB, r"^DiscountedUCB is a class; check an object of it: DiscountedUCB\(\)"),
    ],
)
def test_what_is_wrong_is_said(bandit: Bandit, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_bandit(bandit)


def test_lists_are_part_of_the_interface() -> None:
    with pytest.raises((AssertionError, TypeError), match="list"):
        check_bandit(OnlyArrays())


def test_a_bandit_that_is_not_meant_to_learn() -> None:
    check_bandit(AlwaysTheFirst(), learns=False)


def test_statistics_that_a_state_does_not_have_are_nan() -> None:
    bandit = InTurn(3)
    state = bandit.begin(2, 3)
    assert bandit.counts(state).shape == bandit.means(state).shape == (2, 3)
    assert np.isnan(bandit.counts(state)).all()
    assert np.isnan(bandit.means(state)).all()


class TestSeeds:
    def test_each_run_has_its_own(self, array: Any) -> None:
        state = EpsilonGreedy().begin(3, 4, array.device, seeds=[7, -1, 2**70])
        assert state.generator.tolist() == [[7, 0], [-1, 0], [0, 0]]
        assert EpsilonGreedy().begin(2, 4, array.device).generator.tolist() == [[0, 0], [0, 0]]

    def test_runs_with_other_seeds_go_other_ways(self) -> None:
        bandit = EpsilonGreedy(epsilon=1.0)
        state = bandit.begin(2, 50, seeds=[0, 1])
        arms = []
        for _ in range(20):
            arm, state = bandit.propose(state)
            arms.append(arm.tolist())
        assert len({tuple(column) for column in zip(*arms, strict=True)}) == 2

    def test_one_for_each_run(self) -> None:
        with pytest.raises(SettingError, match="there are 1 seeds for 2 runs"):
            EpsilonGreedy().begin(2, 4, seeds=[0])

    def test_a_bandit_without_a_generator_needs_none(self) -> None:
        assert isinstance(DiscountedUCB().begin(2, 4, seeds=[0, 1]), BanditState)


@dataclass(frozen=True)
class Renamed(DiscountedUCB):
    """Its first version called the counts by another name."""

    state_version = 2

    def migrate(self, arrays: dict[str, Array], version: int) -> dict[str, Array]:
        if version != 1:
            return super().migrate(arrays, version)
        return {"counts" if name == "trials" else name: array for name, array in arrays.items()}


class TestLoading:
    def saved(self, bandit: Bandit) -> dict[str, Array]:
        _, state = bandit.propose(bandit.begin(1, 3))
        return arrays_of(state)

    def test_another_version_is_translated(self) -> None:
        saved = self.saved(DiscountedUCB())
        old = {"trials" if name == "counts" else name: array for name, array in saved.items()}
        state = Renamed().restored(Renamed().begin(1, 3), old, version=1)
        assert {name: array.tolist() for name, array in arrays_of(state).items()} == {
            name: array.tolist() for name, array in saved.items()
        }

    def test_a_version_that_nobody_can_read(self) -> None:
        with pytest.raises(CheckpointError, match="version 7 of the state of Renamed, which now reads only version 2"):
            Renamed().restored(Renamed().begin(1, 3), {}, version=7)

    def test_another_bandits_state(self) -> None:
        with pytest.raises(CheckpointError, match="its state has the fields counts, generator, rewards"):
            DiscountedUCB().restored(DiscountedUCB().begin(1, 3), self.saved(EpsilonGreedy()))

    def test_another_number_of_arms(self) -> None:
        with pytest.raises(CheckpointError, match=r"rewards has the shape \(1, 3\), but \(1, 4\) is needed"):
            DiscountedUCB().restored(DiscountedUCB().begin(1, 4), self.saved(DiscountedUCB()))
