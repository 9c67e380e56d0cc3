"""Processes that write to a folder are killed, and disks are full, at any moment: what was stored stays whole."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotswap.store import Checkpoints, Folder
from tests.children import child

WRITE = """
import resource, sys
from pathlib import Path
import torch
from hotswap.errors import StudyError
from hotswap.store import Checkpoints, Folder
path, most = Path(sys.argv[1]), int(sys.argv[2])
if most:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    folder = Folder.create(path, "study", {"epochs": 3})
    for number in range(10**6 if not most else 40):
        rows = {"name": f"u{number % 9}", "rows": list(range(97 * (number % 40))), "number": number}
        with folder.holding(rows["name"]):
            Checkpoints(path / "checkpoints" / rows["name"]).save(number + 1, rows, {"w": torch.ones(number % 50, 60)})
            folder.store(rows["name"], rows)
            folder.tell(rows["name"], done=number)
        print(number, flush=True)
except StudyError as error:
    print("said:", error, flush=True)
"""


def check(path: Path) -> None:
    """Every unit and every checkpoint is as it was written, and no unit is held."""
    folder = Folder.open(path, "study")
    for name, content in folder.units().items():
        assert content["rows"] == list(range(97 * (content["number"] % 40)))
        assert not folder.is_held(name)
    assert not folder.damaged
    for place in (path / "checkpoints").glob("*"):
        if any(place.glob("epoch-*")):
            latest = Checkpoints(place).latest(pytest.fail)
            assert latest is not None
            assert len(latest.tensors["w"]) == (latest.epoch - 1) % 50


def killed(path: Path, kills: int) -> None:
    chance = random.Random(0)
    for _ in range(kills):
        with child([sys.executable, "-c", WRITE, str(path), "0"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            process.wait()
        check(path)


def full(path: Path, tries: int) -> int:
    """How often a disk was full on which a file can have so many bytes."""
    said = 0
    for number in range(tries):
        most = 200 + 12_000 * number // tries
        done = subprocess.run(
            [sys.executable, "-c", WRITE, str(path / str(number)), str(most)],
            capture_output=True,
            text=True,
            check=True,
        )
        *_, last = done.stdout.splitlines()
        said += last.startswith("said:")
        assert last == "39" or "cannot be" in last or "The disk is full" in last
        if (path / str(number) / "about.hotswap").exists():
            check(path / str(number))
    return said


def test_a_kill_and_a_full_disk_lose_nothing(tmp_path: Path) -> None:
    killed(tmp_path / "killed", 1)
    assert full(tmp_path / "full", 1)


@pytest.mark.soak
def test_kills_and_full_disks_lose_nothing(tmp_path: Path) -> None:
    killed(tmp_path / "killed", 25)
    assert full(tmp_path / "full", 25) > 10
