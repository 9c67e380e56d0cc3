"""Each example runs, and learns something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run side by side
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lightning(tmp_path: Path) -> None:
    found = re.search(r"test error ([\d.]+)%", run("with_lightning.py", cwd=tmp_path))
    assert found is not None
    assert float(found[1]) < 8


def test_transformers(tmp_path: Path) -> None:
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", run("with_transformers.py", cwd=tmp_path))]
    assert losses[-1] < 0.95 * losses[0]


def test_tensorboard(tmp_path: Path) -> None:
    assert "logged to here" in run("with_tensorboard.py", "here", cwd=tmp_path)
    assert list((tmp_path / "here").iterdir())


def test_every_example_is_here() -> None:
    names = {path.stem.removeprefix("with_") for path in EXAMPLES.glob("*.py")}
    assert names == {name.removeprefix("test_") for name in globals() if name in {f"test_{n}" for n in names}}
    assert names
