"""Names that files and commands choose from."""

from __future__ import annotations

import pytest

from hotswap import (
    UCB1,
    Armijo,
    Backtracking,
    BothWays,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FirstDecrease,
    FixedArm,
    LogReduction,
    NoSearch,
    RelativeReduction,
    SettingError,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)
from hotswap.bandits import BANDITS
from hotswap.registry import Registry
from hotswap.rewards import REWARDS
from hotswap.searches import SEARCHES


def test_what_is_registered() -> None:
    assert dict(BANDITS) == {
        "discounted_ucb": DiscountedUCB,
        "epsilon_greedy": EpsilonGreedy,
        "exp3s": Exp3S,
        "fixed_arm": FixedArm,
        "sliding_window_ucb": SlidingWindowUCB,
        "smoothed_ucb": SmoothedUCB,
        "thompson_sampling": ThompsonSampling,
        "ucb1": UCB1,
    }
    assert dict(SEARCHES) == {
        "armijo": Armijo,
        "backtracking": Backtracking,
        "both_ways": BothWays,
        "first_decrease": FirstDecrease,
        "no_search": NoSearch,
    }
    assert dict(REWARDS) == {"log_reduction": LogReduction, "relative_reduction": RelativeReduction}


def test_a_registry_is_a_mapping_that_grows() -> None:
    things: Registry[object] = Registry("thing")
    one = things.register("one")(object())
    assert list(things) == ["one"]
    assert things["one"] is things.find("one", "here") is one
    assert things.name_of(one) == "one"
    assert things.name_of(object()) is None


def test_a_name_that_is_not_there() -> None:
    things: Registry[object] = Registry("thing")
    things.register("greedy")(1)
    things.register("lazy")(2)
    with pytest.raises(SettingError, match=r"^study: there is no thing 'gredy'; there are greedy, lazy \(nearest: gr"):
        things.find("gredy", "study")
    with pytest.raises(
        SettingError, match=r"there is no thing 3; there are greedy, lazy\. If it is one of your own, load"
    ):
        things.find(3, "study")


def test_a_name_belongs_to_one_thing() -> None:
    things: Registry[object] = Registry("thing")
    first = object()
    things.register("one")(first)
    things.register("one")(first)
    with pytest.raises(SettingError, match="There is a thing called 'one' already"):
        things.register("one")(object())
    assert things["one"] is first


def test_a_class_that_is_defined_again_takes_its_own_place() -> None:
    things: Registry[type] = Registry("thing")

    def define() -> type:
        @things.register("one")
        class One:
            pass

        return One

    define()
    again = define()
    assert things["one"] is again


@pytest.mark.parametrize("name", ["", "Two", "a b", "a/b", "größe", 3])
def test_names_are_plain_words(name: str) -> None:
    with pytest.raises(SettingError, match="use lower-case letters, digits and underscores"):
        Registry("thing").register(name)


def test_things_that_know_their_name_have_one() -> None:
    things: Registry[type] = Registry("algorithm", attribute="called")

    @things.register("one")
    class One:
        called: str

    assert One.called == "one"
    with pytest.raises(SettingError, match="One is registered as 'one' already; make a subclass of it"):
        things.register("two")(One)
    assert (One.called, list(things)) == ("one", ["one"])
    with pytest.raises(SettingError, match="There is an algorithm called 'one' already"):
        things.register("one")(int)
