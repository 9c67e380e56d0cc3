"""Real processes that train together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hotswap
from tests.optim.distributed.processes import Processes
from tests.optim.helpers import model

Run = Callable[[str, int, Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Has a task done by so many processes, which are the same for all tests until one of them fails."""
    groups: dict[int, Processes] = {}

    def done(task: str, world: int, folder: Path) -> list[dict[str, Any]]:
        group = groups.pop(world, None) or Processes(world, tmp_path_factory.mktemp(f"world-{world}-"))
        found = group.do(task, folder)
        if not all(found):
            group.end()
            pytest.fail(f"{task!r} failed in {world} processes.\n{group.complaints()}")
        groups[world] = group
        return found

    yield done
    ends = {world: group.end() for world, group in groups.items()}
    assert ends == {world: [0] * world for world in groups}


def test_replicas_take_the_same_steps(run: Run, tmp_path: Path) -> None:
    results = run("ddp", 2, tmp_path)
    for result in results:
        assert result["same"]
        assert result["last"] < 0.9 * result["first"]
        assert all(asked == evaluations for asked, evaluations in result["collectives"])  # start point and trials
        assert result["tracked"] == 100
        assert result["losses"] == results[0]["losses"]


def test_trials_leave_ddps_buffers_alone(run: Run, tmp_path: Path) -> None:
    assert all(result["equal"] == [True, True] for result in run("ddp_buffers", 2, tmp_path))


def test_trials_see_the_buffers_that_the_gradient_pass_saw(run: Run, tmp_path: Path) -> None:
    first, second = run("ddp_function", 2, tmp_path)
    assert all(len(step) == 1 for step in first["seen"])
    assert first["seen"] == second["seen"]
    assert len({step[0] for step in first["seen"]}) > 5


def test_a_sharded_model_is_one_model(run: Run, tmp_path: Path) -> None:
    for result in run("fsdp", 2, tmp_path):
        for name, found in result.items():
            assert found["same"], name
            assert found["arms"] == 1.0, name
            assert found["distance"] < 1e-4, name
            assert found["resumed"], name


def test_all_processes_are_told_the_same_slope(run: Run, tmp_path: Path) -> None:
    """Replicas, shards, and shards that have replicas."""
    for result in run("slope", 4, tmp_path):
        assert len(result) == 9
        for name, found in result.items():
            assert found["same"], name
            assert found["right"], name
            assert found["trials"] >= 8, name


def test_steps_without_trials_agree_and_go_on_from_a_distributed_checkpoint(run: Run, tmp_path: Path) -> None:
    for result in run("fewer", 2, tmp_path):
        for name, found in result.items():
            assert found == {"same": True, "collectives": [1], "resumed": True}, name


def test_a_process_whose_loss_is_not_a_number(run: Run, tmp_path: Path) -> None:
    for result in run("nan", 2, tmp_path):
        assert result["stayed"]
        assert "The loss at the start point is nan" in result["raised"]
        assert result["same"]


def test_a_trial_that_raises_in_one_process(run: Run, tmp_path: Path) -> None:
    first, second = run("raising", 2, tmp_path)
    for result in (first, second):
        assert result["same"]
        assert result["trials"][0] == [0, False]
        assert result["arm"] == first["arm"] != 0
    assert first["trials"] == second["trials"]
    assert first["said"] == []
    assert len(second["said"]) == 1
    assert "raised ValueError('too far away') at a trial with lr=1." in second["said"][0]


def test_accumulation_in_replicas(run: Run, tmp_path: Path) -> None:
    for result in run("accumulated", 2, tmp_path):
        assert result["same"]
        assert result["exchanged"] == [1]


def test_accumulation_in_a_sharded_model(run: Run, tmp_path: Path) -> None:
    for result in run("fsdp_accumulated", 2, tmp_path):
        assert result["same"]
        assert result["distance"] < 1e-4
        assert result["reduced"] == [1]
        assert "on top of gradients that were accumulated" in result["refused"]


def test_a_dead_process_ends_the_others(tmp_path: Path) -> None:
    group = Processes(2, tmp_path)
    assert group.do("dead", tmp_path) == [{}, {}]
    first, second = group.end()
    assert second == 7
    assert first != 0
    assert "Error" in group.errors[0].read_text(encoding="utf-8")


def test_a_group_that_is_none() -> None:
    with pytest.raises(hotswap.SettingError, match=r"process_group must be a torch\.distributed process group"):
        hotswap.HotSwapSGD(model().parameters(), process_group="mine")


def test_the_first_way_of_sharding_is_refused(run: Run, tmp_path: Path) -> None:
    for result in run("flattened", 2, tmp_path):
        assert "shard the model with torch.distributed.fsdp.fully_shard" in result["refused"]
