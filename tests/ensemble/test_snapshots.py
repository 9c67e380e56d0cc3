"""Snapshots of an ensemble on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hotswap.ensemble import Mlp
from hotswap.ensemble.snapshots import load_kept, load_latest, save
from tests.ensemble.helpers import SIZES, hot_swapped, train


def test_training_continues_from_a_snapshot(tmp_path: Path) -> None:
    straight, first, second = (hot_swapped(Mlp(SIZES), [0, 1]) for _ in range(3))
    train(straight, epochs=2, count=300)
    train(first, count=300)
    save(tmp_path, 1, first.state(), {"runs": ["a", "b"]})
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert (found.epoch, found.notes) == (1, {"runs": ["a", "b"]})
    second.restore(found.tensors)
    train(second, first=1, epochs=2, count=300)
    for name, tensor in straight.state().items():
        assert torch.equal(tensor, second.state()[name]), name


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
    with monkeypatch.context() as before:
        before.setattr("hotswap.ensemble.snapshots.FORMAT", 3)
        save(tmp_path / "old", 3, theta, {})
    assert load_latest(tmp_path / "old", said.append) is None
    assert "another version of hotswap wrote it, which is not read" in said[1]


def test_the_last_two_stay_and_those_to_keep(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        save(tmp_path, epoch, {"theta": torch.ones(1)}, {}, keep=epoch == 2)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["epoch-000002-kept.safetensors", "epoch-000003.safetensors", "epoch-000004.safetensors"]
    kept = load_kept(tmp_path, 2)
    assert kept is not None
    assert kept.epoch == 2
    assert load_kept(tmp_path, 3) is None
