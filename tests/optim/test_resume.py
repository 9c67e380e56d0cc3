"""Stopped, and loaded in a new process: the next hundred steps are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from tests.optim.resumed import Run

ROOT = Path(__file__).parents[2]


def test_the_next_hundred_steps_are_the_same(tmp_path: Path) -> None:
    stopped = Run()
    stopped.train(50)
    torch.save(stopped.state(), tmp_path / "half.pt")
    command = [sys.executable, "-m", "tests.optim.resumed", str(tmp_path / "half.pt"), str(tmp_path / "resumed.pt")]
    subprocess.run(command, cwd=ROOT, check=True)
    resumed = torch.load(tmp_path / "resumed.pt", weights_only=True)
    whole = Run()
    whole.train(50)
    assert whole.train(100) == resumed["seen"]
    for name, tensor in whole.net.state_dict().items():
        assert torch.equal(tensor, resumed["net"][name]), name
    assert torch.equal(torch.get_rng_state(), resumed["random"])
