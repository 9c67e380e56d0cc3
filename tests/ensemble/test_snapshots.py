"""Snapshots of an ensemble on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from hotswap.ensemble import Mlp
from hotswap.ensemble.snapshots import FORMAT, load_kept, load_latest, save
from tests.ensemble.helpers import SIZES, D, adadelta, hot_swapped, train

BEFORE = Path(__file__).parent / "written_before"


def test_training_continues_from_a_snapshot(tmp_path: Path) -> None:
    straight, first, second = (hot_swapped(Mlp(SIZES), [0, 1]) for _ in range(3))
    train(straight, epochs=2)
    train(first)
    save(tmp_path, 1, first.state(), {"runs": ["a", "b"]})
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert (found.epoch, found.notes) == (1, {"runs": ["a", "b"]})
    second.restore(found.tensors)
    train(second, first=1, epochs=2)
    for name, tensor in straight.state().items():
        assert torch.equal(tensor, second.state()[name]), name


def test_a_snapshot_of_the_version_before_is_read(tmp_path: Path) -> None:
    """Format 3, after one epoch of the same training: the bandit's fields had no prefix, rewards no scale."""
    for path in BEFORE.iterdir():
        shutil.copy(path, tmp_path)
    with safe_open(tmp_path / "epoch-000001.safetensors", framework="pt") as file:
        assert set(file.keys()) == {"theta", "rewards", "counts", "step"}
        assert json.loads(file.metadata()["notes"])["format"] == 3
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert FORMAT == 4
    now, update = hot_swapped(Mlp(SIZES), [0, 1]), hot_swapped(Mlp(SIZES), [7, 8])
    train(now)
    update.restore(found.tensors)
    state = update.state()
    assert state["reward_scale"].tolist() == [0.0, 0.0]
    assert state.pop("passes").isnan().all()  # they were not counted, and zero would be wrong
    for name, tensor in state.items():  # first weights are drawn in float32, whose last bit depends on the processor
        torch.testing.assert_close(tensor, now.state()[name], rtol=1e-4, atol=1e-5)


def test_tensors_of_the_version_before_without_a_bandit_keep_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = adadelta(Mlp(SIZES), Mlp(SIZES).initial([0]).to(D))
    monkeypatch.setattr("hotswap.ensemble.snapshots.FORMAT", 3)
    save(tmp_path, 1, update.state(), {})
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert set(found.tensors) == set(update.state())


def test_what_is_damaged_or_unknown_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theta = {"theta": torch.ones(1, 2)}
    save(tmp_path, 1, theta, {})
    second = save(tmp_path, 2, theta, {})
    second.write_bytes(second.read_bytes()[:-1])
    said: list[str] = []
    found = load_latest(tmp_path, said.append)
    assert found is not None
    assert found.epoch == 1
    assert said == [
        "The checkpoint epoch-000002.safetensors cannot be used (it is damaged: its checksum does not match); "
        "going back to the one before it."
    ]
    monkeypatch.setattr("hotswap.ensemble.snapshots.FORMAT", 2)
    save(tmp_path / "old", 3, theta, {})
    assert load_latest(tmp_path / "old", said.append) is None
    assert "another version of hotswap wrote it" in said[1]


def test_the_last_two_stay_and_those_to_keep(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        save(tmp_path, epoch, {"theta": torch.ones(1)}, {}, keep=epoch == 2)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["epoch-000002-kept.safetensors", "epoch-000003.safetensors", "epoch-000004.safetensors"]
    kept = load_kept(tmp_path, 2)
    assert kept is not None
    assert kept.epoch == 2
    assert load_kept(tmp_path, 3) is None
