"""Races of real processes that train together: replicas, shards, and what happens when one process differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.optim.distributed.processes import Processes

Run = Callable[[str, Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Has a task done by two processes, which are the same for all tests until one of them fails."""
    groups: list[Processes] = []

    def done(task: str, folder: Path) -> list[dict[str, Any]]:
        group = (
            groups.pop() if groups else Processes(2, tmp_path_factory.mktemp("two-"), "tests.race.distributed.workers")
        )
        found = group.do(task, folder)
        if not all(found):
            group.end()
            pytest.fail(f"{task!r} failed.\n{group.complaints()}")
        groups.append(group)
        return found

    yield done
    assert [group.end() for group in groups] == [[0, 0]] * len(groups)


def test_replicas_agree_by_one_all_reduce_a_turn_and_one_every_50_steps_after_the_race(
    run: Run, tmp_path: Path
) -> None:
    results = run("ddp", tmp_path)
    for result in results:
        assert result["same"]
        turns, asked = result["turns"]
        assert turns == asked > 2
        assert result["after"][:-1] == [50] * (len(result["after"]) - 1)
        assert len(result["after"]) > 1
    assert results[0]["standings"] == results[1]["standings"]


def test_replicas_do_what_one_process_does_with_all_minibatches(run: Run, tmp_path: Path) -> None:
    for result in run("replicas", tmp_path):
        first, second = result["winners"]
        assert first == second
        assert result["distance"] < 1e-4


def test_a_sharded_model_races_as_a_whole_one_and_never_shows_stale_weights(run: Run, tmp_path: Path) -> None:
    for result in run("fsdp", tmp_path):
        for name, found in result.items():
            first, second = found["winners"]
            assert first == second, name
            assert found["same"], name
            assert found["distance"] < 1e-4, name
            assert found["looked"] < 1e-4, name
            assert found["sharded"], name


def test_muon_gathers_sharded_matrices_and_keeps_its_state_sharded(run: Run, tmp_path: Path) -> None:
    for result in run("muon", tmp_path):
        assert result["distance"] < 1e-4
        assert result["sharded"]
        assert result["same"]


def test_each_process_goes_on_exactly_from_its_own_file(run: Run, tmp_path: Path) -> None:
    for result in run("saved", tmp_path):
        assert result == {"fsdp": [True] * 4, "ddp": [True] * 4}


def test_judges_are_averaged_and_one_that_raises_ends_the_turn_everywhere(run: Run, tmp_path: Path) -> None:
    first, second = run("judged", tmp_path)
    for kind in ("fsdp", "ddp"):
        assert first[kind]["same"]
        assert first[kind]["won"]
        assert first[kind]["losses"] == second[kind]["losses"]
    assert "judge raised an error in another process" in first["ddp"]["said"]
    assert second["ddp"]["said"] == "ValueError: no data"
    assert first["fsdp"]["said"] == ""


def test_losses_that_are_odd_in_one_process_count_in_all(run: Run, tmp_path: Path) -> None:
    first, second = run("odd_losses", tmp_path)
    assert first == second
    assert all(found["same"] for found in first.values())
    assert first["nan"]["standings"] != first["missing"]["standings"]
    assert "has trained for 20 steps without a loss" in first["none"]["said"]
    assert first["none"]["step"] == 21


def test_all_processes_race_as_many_lanes_as_the_one_with_the_least_memory(run: Run, tmp_path: Path) -> None:
    first, second = run("memory", tmp_path)
    for result in (first, second):
        assert result["same"]
        assert result["steps"] == [100, 0, 0]
    assert (first["said"], second["said"]) == (1, 0)


def test_the_first_way_of_sharding_is_refused(run: Run, tmp_path: Path) -> None:
    for result in run("flattened", tmp_path):
        assert "shard the model with torch.distributed.fsdp.fully_shard" in result["refused"]


def test_distributed_checkpoints_before_and_after_a_race_are_exact_and_move_no_weight(run: Run, tmp_path: Path) -> None:
    for result in run("checkpoints", tmp_path):
        assert "only supports" in result.pop("flattened")
        assert "more than two tensors of each parameter's shape" in result.pop("strange")
        assert len(result) == 4
        for name, found in result.items():
            assert found["exact"] == [True, True], name
            assert found["unmoved"] == [True, True, True], name
            assert "let each process save optimizer.state_dict() with torch.save" in found["said"], name
