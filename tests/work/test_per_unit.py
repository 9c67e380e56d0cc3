"""What a unit needs, and who has room for it."""

from __future__ import annotations

from typing import Any

import pytest

from hotswap.errors import SettingError
from hotswap.work import PerUnit


def test_from_the_command_line() -> None:
    assert PerUnit.parse([]) == PerUnit(cpu=1, gpu=0)
    assert PerUnit.parse([], device="cuda") == PerUnit(cpu=1, gpu=1)
    assert PerUnit.parse(["gpu=0.5"], device="cuda") == PerUnit(cpu=1, gpu=0.5)
    assert PerUnit.parse(["gpu=2, cpu=4", "fast=1"]) == PerUnit(cpu=4, gpu=2, others=(("fast", 1.0),))
    assert str(PerUnit.parse(["gpu=0.25,cpu=0"])) == "gpu=0.25"


def test_as_ray_has_it() -> None:
    unit = PerUnit(cpu=2, gpu=0.5, others=(("fast", 1.0),))
    assert unit.options() == {"num_cpus": 2, "num_gpus": 0.5, "resources": {"fast": 1.0}}
    assert unit.threads == 2
    assert PerUnit(cpu=0.5).threads == 1


@pytest.mark.parametrize(
    ("needs", "node", "room"),
    [
        ({"cpu": 1}, {"CPU": 16.0}, 16),
        ({"cpu": 3}, {"CPU": 16.0}, 5),
        ({"cpu": 0.1}, {"CPU": 0.3}, 3),  # 0.3 / 0.1 is a little less than 3
        ({"gpu": 0.5}, {"CPU": 16.0, "GPU": 2.0}, 4),
        ({"gpu": 0.5}, {"CPU": 3.0, "GPU": 2.0}, 3),
        ({"gpu": 1}, {"CPU": 16.0}, 0),
        ({"others": (("fast", 1.0),)}, {"CPU": 4.0, "fast": 2.0}, 2),
    ],
)
def test_room_on_a_node(needs: dict[str, Any], node: dict[str, float], room: int) -> None:
    assert PerUnit(**needs).room(node) == room


@pytest.mark.parametrize("text", ["gpu", "gpu=", "gpu=half", "=", "cpu:1"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(SettingError, match=r"--per-unit .*: give a name and an amount, such as gpu=0\.5 or cpu=2"):
        PerUnit.parse([text])


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ({"gpu": -1}, "gpu is -1; it must be a finite number, 0 or more."),
        ({"cpu": float("inf")}, "cpu is inf; it must be a finite number, 0 or more."),
        ({"gpu": 1.5}, "gpu is 1.5; above 1 it must be a whole number."),
        ({"cpu": 0}, "a unit needs something, or all units would run at once; give cpu or gpu."),
    ],
)
def test_what_cannot_be_meant(needs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        PerUnit(**needs)
    assert str(caught.value) == f"PerUnit: {sentence}"


@pytest.mark.parametrize(
    ("unit", "sentence"),
    [
        (PerUnit(gpu=0.5), "A unit is to have gpu=0.5, but the cluster has none; ask for less with --per-unit"),
        (PerUnit(cpu=8), "A unit is to have cpu=8, but the cluster has at most 4 on a node; ask for less"),
        (PerUnit(cpu=4, others=(("fast", 1.0),)), "No node of the cluster has all of cpu=4,fast=1; ask for less"),
    ],
)
def test_no_node_has_room(unit: PerUnit, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        unit.check([{"CPU": 4.0}, {"CPU": 1.0, "fast": 1.0}])
    assert str(caught.value).startswith(sentence)
    PerUnit(cpu=4).check([{"CPU": 4.0}])
