"""How far the checkpoints of a unit go, as those see it who do not load them."""

from __future__ import annotations

from pathlib import Path

import torch

from hotswap.ensemble.snapshots import load_latest, save
from hotswap.studies.storage.checkpoint_files import checkpoint_folder, latest_checkpoint


def test_the_latest_is_the_one_that_training_goes_on_from(tmp_path: Path) -> None:
    folder = checkpoint_folder(tmp_path, "sgd-b64", ["b", "a"])
    assert latest_checkpoint(folder) == 0
    for epoch, keep in ((1, False), (9, True), (7, False), (120, False)):
        save(folder, epoch, {"theta": torch.zeros(1, 2)}, {}, keep=keep)
        latest = load_latest(folder, print)
        assert latest is not None
        assert latest_checkpoint(folder) == latest.epoch
    (folder / "epoch-000120.sha256").unlink()  # its writing was cut short
    assert latest_checkpoint(folder) == 9
    (folder / "epoch-000009-kept.safetensors").unlink()
    assert latest_checkpoint(folder) == 7


def test_other_runs_have_another_folder(tmp_path: Path) -> None:
    whole = checkpoint_folder(tmp_path, "sgd-b64", ["a", "b"])
    assert whole == checkpoint_folder(tmp_path, "sgd-b64", ["b", "a"])
    assert whole != checkpoint_folder(tmp_path, "sgd-b64", ["a"])
    assert whole.name.startswith("sgd-b64-")
