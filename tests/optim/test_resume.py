"""Stopped, and loaded in a new process: the next hundred steps are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


def run(before: int, after: int, source: Path | str, target: Path) -> Any:
    arguments = [str(before), str(after), str(source), str(target)]
    subprocess.run([sys.executable, "-m", "tests.optim.resumed", *arguments], cwd=ROOT, check=True)
    return torch.load(target, weights_only=True)


def test_the_next_hundred_steps_are_the_same(tmp_path: Path) -> None:
    whole = run(50, 100, "-", tmp_path / "whole.pt")
    run(0, 50, "-", tmp_path / "half.pt")
    resumed = run(0, 100, tmp_path / "half.pt", tmp_path / "resumed.pt")
    assert resumed["seen"] == whole["seen"]
    for name, tensor in whole["net"].items():
        assert torch.equal(tensor, resumed["net"][name]), name
    assert torch.equal(whole["random"], resumed["random"])
