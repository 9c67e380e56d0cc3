"""Settings that a bandit refuses, each in a sentence with the value and the rule."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hotswap import (
    UCB1,
    Bandit,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FactoredBandit,
    FixedArm,
    SettingError,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)

NAN, INF = math.nan, math.inf
SHARE, DISCOUNT, POSITIVE, WHOLE = "in [0, 1]", "in (0, 1]", "positive and finite", "a whole number of at least "
RULES: list[tuple[type[Bandit], str, str, tuple[Any, ...]]] = [
    *((kind, "exploration", "finite and not negative", (-1e-9, NAN, INF)) for kind in (DiscountedUCB, UCB1)),
    *((kind, "exploration", "finite and not negative", (-1.0,)) for kind in (SlidingWindowUCB, SmoothedUCB)),
    *((kind, "discount", DISCOUNT, (0.0, 1.1, NAN)) for kind in (DiscountedUCB, EpsilonGreedy, SmoothedUCB)),
    (EpsilonGreedy, "epsilon", SHARE, (-0.1, 1.1, NAN)),
    (Exp3S, "exploration", DISCOUNT, (0.0, 1.1, NAN)),
    (Exp3S, "share", SHARE, (-0.1, 1.1, NAN)),
    (Exp3S, "memory", SHARE, (-0.1, 1.1, NAN)),
    (FixedArm, "arm", WHOLE + "0", (-1, 1.5, True, "first")),
    (FixedArm, "rate", POSITIVE, (0.0, -0.1, NAN, INF)),
    (SlidingWindowUCB, "window", WHOLE + "1", (0, -3, 2.5, True, "many")),
    (SmoothedUCB, "width", POSITIVE, (0.0, INF)),
    (SmoothedUCB, "bound", POSITIVE, (0.0,)),
    (SmoothedUCB, "rates", "positive, finite rates, at least one", ((), (1.0, 0.0))),
    (SmoothedUCB, "row", WHOLE + "1, or None", (0, 2.0)),
    (ThompsonSampling, "discount", DISCOUNT, (0.0, 1.1, NAN)),
    *((ThompsonSampling, name, POSITIVE, (0.0, -1.0, NAN, INF)) for name in ("prior", "noise", "bound")),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "rule"),
    [(kind, name, value, rule) for kind, name, rule, values in RULES for value in values],
)
def test_a_setting_follows_its_rule(kind: type[Bandit], name: str, value: Any, rule: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{name: value})
    assert str(caught.value) == f"{kind.__name__}({name}={value!r}): {name} must be {rule}."


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (FixedArm, {}, "name the arm by its number or by its rate; give one of them"),
        (FixedArm, {"arm": 1, "rate": 0.1}, "name the arm by its number or by its rate; give one of them"),
        (SmoothedUCB, {"row": 3, "rates": (1.0, 0.1)}, "row must be the number of rates, which is 2"),
        (FactoredBandit, {"bandit": UCB1, "shape": (2, 3)}, "bandit must be a hotswap.Bandit object, or a tuple"),
        (FactoredBandit, {"bandit": (), "shape": (2, 3)}, "bandit must be a hotswap.Bandit object, or a tuple"),
        *(
            (FactoredBandit, {"bandit": UCB1(), "shape": shape}, "shape must be the number of values of each")
            for shape in ((), (2, 0), (2, 1.5))
        ),
        (FactoredBandit, {"bandit": (UCB1(),), "shape": (2, 3)}, "there are 1 bandits for 2 hyperparameters; give one"),
    ],
)
def test_settings_that_do_not_go_together(kind: type[Bandit], settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**settings)
    assert str(caught.value).startswith(f"{kind.__name__}(")
    assert sentence in str(caught.value)
