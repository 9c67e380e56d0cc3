"""One bandit for each hyperparameter."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hotswap import (
    UCB1,
    Arms,
    Bandit,
    CheckpointError,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FactoredBandit,
    FixedArm,
    SettingError,
    SmoothedUCB,
    ThompsonSampling,
)
from hotswap.arrays import Array
from hotswap.bandits.base import mean_rewards
from hotswap.states import arrays_of, replaced
from tests.bandits.bandits import EpsilonGreedyData, InTurn

Make = Any
ARMS = Arms.of({"lr": [1, 0.1, 0.01], "momentum": [0.9, 0.0]})  # arm = 3 · place of momentum + place of lr


def begun(bandit: FactoredBandit, arms: int, array: Make) -> Any:
    """A state in which nothing is known, and all axes have begun."""
    return replaced(bandit.begin(1, arms, array.device), step=array([1000]))


def test_what_is_observed_by_hand(array: Make) -> None:
    bandit = FactoredBandit(UCB1(exploration=0.0), (2, 3))
    state = begun(bandit, 6, array)
    state = bandit.observe(
        state, array([[1, 2, 4, 5]]), array([[0.5, 0.25, 1.0, 9.0]]), array([[True, True, True, False]])
    )
    assert state.parts[0].counts.tolist() == [[2.0, 1.0]]  # arms 1 and 2, and 4
    assert state.parts[0].rewards.tolist() == [[0.75, 1.0]]
    assert state.parts[1].counts.tolist() == [[0.0, 2.0, 1.0]]  # arms 1 and 4, and 2
    assert state.parts[1].rewards.tolist() == [[0.0, 1.5, 0.25]]
    assert bandit.counts(state).tolist() == [[0.0, 2.0, 1.0, 0.0, 1.0, 1.0]]  # the smaller one of its two values
    assert bandit.means(state)[0].tolist() == [
        0.1875,
        0.5625,
        0.3125,
        0.5,
        0.875,
        0.625,
    ]  # (0.375, 1) and (0, .75, .25)
    assert bandit.index(state)[0, 1:].tolist() == [1.125, 0.625, float("inf"), 1.75, 1.25]


def test_arms_are_numbered_as_arms_values_does(array: Make) -> None:
    for place in range(2):
        for other in range(3):
            bandit = FactoredBandit((FixedArm(arm=place), FixedArm(arm=other)), (2, 3))
            arm, _ = bandit.propose(bandit.begin(1, 6, array.device))
            assert ARMS.values(arm.item()) == {"momentum": ARMS.axes[0][place], "lr": ARMS.axes[1][other]}


def test_three_axes(array: Make) -> None:
    bandit = FactoredBandit((FixedArm(arm=1), FixedArm(arm=0), FixedArm(arm=3)), (2, 3, 4))
    arm, state = bandit.propose(begun(bandit, 24, array))
    assert arm.tolist() == [15]  # 1 · 12 + 0 · 4 + 3
    state = bandit.observe(state, array([[15, 14]]), array([[1.0, 2.0]]))
    assert state.parts[0].rewards.tolist() == [[0.0, 3.0]]
    assert state.parts[1].rewards.tolist() == [[3.0, 0.0, 0.0]]
    assert state.parts[2].rewards.tolist() == [[0.0, 0.0, 2.0, 1.0]]
    assert bandit.index(state).argmax(axis=1).tolist() == [15]


def test_there_are_as_many_statistics_as_values() -> None:
    state = FactoredBandit(DiscountedUCB(), (7, 33)).begin(2, 231)
    assert max(array.shape[-1] for array in arrays_of(state).values()) == 33
    assert list(arrays_of(state)) == [
        f"axis{axis}_{name}" for axis in (0, 1) for name in ("rewards", "counts", "step")
    ] + ["step"]


def test_it_finds_the_best_combination_of_many_with_few_trials() -> None:
    """9 × 9 values whose rewards add up: all combinations are four times as many as there are steps."""
    generator, bandit = np.random.default_rng(0), FactoredBandit(DiscountedUCB(exploration=1e-3), (9, 9))
    worth = [-0.05 * abs(np.arange(9) - best) for best in (6, 2)]
    state, proposed = bandit.begin(20, 81), []
    for _ in range(60):
        arm, state = bandit.propose(state)
        reward = worth[0][arm // 9] + worth[1][arm % 9] + generator.normal(0, 0.02, 20)
        state = bandit.observe(state, arm[:, None], reward[:, None])
        proposed.append(reward)
    assert np.mean(proposed[-10:]) > -0.1  # one value beside the best one in each would be −0.1
    assert np.mean(proposed[:10]) < -0.2


def test_the_axes_begin_one_after_the_other(array: Make) -> None:
    bandit = FactoredBandit(UCB1(exploration=0.0), (2, 3))
    state, proposed = bandit.begin(1, 6, array.device), []
    worth = [0.0, 0.3, 0.1, 0.2, 0.5, 0.3]
    for _ in range(7):
        arm, state = bandit.propose(state)
        proposed.append(arm.item())
        state = bandit.observe(state, arm[:, None], array([[worth[arm.item()]]]))
    assert proposed == [0, 1, 2, 1, 4, 4, 4]  # three values of the last axis; then two of the first, at the best one
    assert state.parts[0].counts.tolist() == [[1.0, 3.0]]
    assert state.parts[1].counts.tolist() == [[1.0, 5.0, 1.0]]
    assert state.step.tolist() == [7]


def test_axes_with_as_many_values_do_not_go_in_step() -> None:
    """Both would propose the same places for ever, had they begun together: the best combination is (0, 1)."""
    bandit = FactoredBandit(DiscountedUCB(), (2, 2))
    state, proposed = bandit.begin(1, 4), []
    for _ in range(30):
        arm, state = bandit.propose(state)
        proposed.append(int(arm[0]))
        state = bandit.observe(state, arm[:, None], np.array([[[0.1, 0.2, 0.0, 0.1][arm[0]]]]))
    assert set(proposed[-20:]) == {1}


class TestSeeds:
    def test_every_axis_has_its_own(self, array: Make) -> None:
        state = FactoredBandit(EpsilonGreedy(), (2, 2, 2)).begin(2, 8, array.device, seeds=[0, 5])
        generators = [part.generator.tolist() for part in state.parts]
        assert generators == [[[0, 0], [15, 0]], [[1, 0], [16, 0]], [[2, 0], [17, 0]]]

    def test_axes_do_not_draw_alike(self) -> None:
        bandit = FactoredBandit(EpsilonGreedy(epsilon=1.0), (5, 5))
        arm, _ = bandit.propose(replaced(bandit.begin(1000, 25, seeds=range(1000)), step=np.full(1000, 99)))
        assert 0.15 < (arm // 5 == arm % 5).mean() < 0.25

    def test_one_for_each_run(self) -> None:
        with pytest.raises(SettingError, match="there are 1 seeds for 2 runs"):
            FactoredBandit(EpsilonGreedy(), (2, 2)).begin(2, 4, seeds=[0])


class TestKnowing:
    def test_every_axis_is_told_its_own_values(self) -> None:
        told = FactoredBandit(SmoothedUCB()).knowing(ARMS)
        assert told.shape == (2, 3)
        assert told.bandit == (SmoothedUCB(row=2), SmoothedUCB(rates=(1.0, 0.1, 0.01), row=3))
        assert told.knowing(ARMS) == told
        assert told.begin(1, 6).parts[1].decades.tolist() == [[0.0, -1.0, -2.0]]

    def test_a_rate_names_a_value_of_its_axis(self) -> None:
        told = FactoredBandit((UCB1(), FixedArm(rate=0.1)), (2, 3)).knowing(ARMS)
        assert told.bandit == (UCB1(), FixedArm(arm=1))

    def test_another_shape_is_refused(self) -> None:
        with pytest.raises(SettingError, match=r"the arms have momentum and lr with \(2, 3\) values; leave the shape"):
            FactoredBandit(UCB1(), (3, 2)).knowing(ARMS)

    def test_without_a_shape_there_is_no_state(self) -> None:
        with pytest.raises(SettingError, match="it has not been told what its arms stand for; give their shape"):
            FactoredBandit(UCB1()).begin(1, 6)


@dataclass(frozen=True)
class Second(UCB1):
    """Counts twice since its second version."""

    state_version = 2

    def migrate(self, arrays: dict[str, Array], version: int) -> dict[str, Array]:
        return arrays | {"counts": 2 * arrays["counts"]} if version == 1 else super().migrate(arrays, version)


class TestLoading:
    def used(self, bandit: FactoredBandit) -> Any:
        state = replaced(bandit.begin(2, 6, seeds=[3, 4]), step=np.array([9, 9]))
        arm, state = bandit.propose(state)
        return bandit.observe(state, arm[:, None], np.array([[0.5], [0.25]]))

    @pytest.mark.parametrize(
        "bandit", [UCB1(), ThompsonSampling(), Exp3S(), EpsilonGreedyData(), SmoothedUCB()], ids=repr
    )
    def test_by_the_names_of_its_fields(self, bandit: Bandit) -> None:
        factored = FactoredBandit(bandit, (2, 3))
        state = self.used(factored)
        again = factored.restored(factored.begin(2, 6), arrays_of(state), factored.state_version)
        assert type(again) is type(state)
        for name, array in arrays_of(state).items():
            assert arrays_of(again)[name].tolist() == array.tolist()

    def test_versions_of_the_axes(self) -> None:
        assert FactoredBandit(UCB1(), (2, 3)).state_version == 1
        assert FactoredBandit((Second(), UCB1()), (2, 3)).state_version == 2
        assert FactoredBandit((UCB1(), Second()), (2, 3)).state_version == 1001

    def test_every_axis_translates_its_own(self) -> None:
        old, new = FactoredBandit(UCB1(), (2, 3)), FactoredBandit((UCB1(), Second()), (2, 3))
        saved = arrays_of(self.used(old))
        state = new.restored(new.begin(2, 6), saved, old.state_version)
        assert state.parts[0].counts.tolist() == saved["axis0_counts"].tolist()
        assert state.parts[1].counts.tolist() == (2 * saved["axis1_counts"]).tolist()
        same = new.restored(new.begin(2, 6), saved, new.state_version)
        assert same.parts[1].counts.tolist() == saved["axis1_counts"].tolist()
        with pytest.raises(CheckpointError, match="holds version 2 of the state of UCB1"):
            old.restored(old.begin(2, 6), saved, new.state_version)

    def test_another_bandits_state_is_refused(self) -> None:
        bandit, other = FactoredBandit(UCB1(), (2, 3)), FactoredBandit(EpsilonGreedy(), (2, 3))
        with pytest.raises(CheckpointError, match="of another bandit: its state has the fields counts, generator, re"):
            bandit.restored(bandit.begin(2, 6), arrays_of(self.used(other)))
        more = FactoredBandit(UCB1(), (2, 3, 1))
        with pytest.raises(CheckpointError, match="axis2_rewards, axis2_step, step, but that of FactoredBandit"):
            bandit.restored(bandit.begin(2, 6), arrays_of(self.used(more)))
        with pytest.raises(CheckpointError, match="its state has the fields nothing, but that of UCB1 has"):
            bandit.restored(bandit.begin(2, 6), arrays_of(UCB1().begin(2, 6)))

    def test_another_shape_is_refused(self) -> None:
        bandit, other = FactoredBandit(UCB1(), (2, 3)), FactoredBandit(UCB1(), (3, 2))
        with pytest.raises(CheckpointError, match=r"rewards has the shape \(2, 3\), but \(2, 2\) is needed"):
            bandit.restored(bandit.begin(2, 6), arrays_of(self.used(other)))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
@pytest.mark.parametrize(
    "bandit",
    [
        FactoredBandit(DiscountedUCB(), (2, 3)),
        FactoredBandit((EpsilonGreedyData(), Exp3S()), (2, 3)),
        FactoredBandit((UCB1(), FactoredBandit(UCB1(), (3, 1))), (2, 3)),
    ],
    ids=repr,
)
def test_a_state_can_be_copied(bandit: FactoredBandit, way: Any) -> None:
    _, state = bandit.propose(bandit.begin(1, 6))
    again = way(state)
    assert type(again) is type(state)
    assert again is not state
    assert bandit.propose(again)[0].tolist() == bandit.propose(state)[0].tolist()


def test_axes_without_means_have_none(array: Make) -> None:
    bandit = FactoredBandit((InTurn(2), UCB1()), (2, 3))
    state = bandit.begin(1, 6, array.device)
    assert np.isnan(np.asarray(bandit.means(state))).all()
    assert np.isnan(np.asarray(bandit.counts(state))).all()
    assert mean_rewards(UCB1().begin(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_another_number_of_arms() -> None:
    for make in (FactoredBandit(UCB1(), (2, 3)).begin, FactoredBandit(UCB1(), (2, 3)).start):
        with pytest.raises(SettingError, match="2 · 3 combinations are not 7 arms"):
            make(1, 7)
