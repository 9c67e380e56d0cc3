"""Each example runs, and learns something."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.children import child

EXAMPLES = Path(__file__).parents[1] / "examples"


SERVER = get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "hotswap.optim", "hotswap.race"])  # which each example would import anew


def script(path: Path, words: tuple[str, ...], folder: Path, said: Path) -> None:
    """Run a program as `python PATH WORDS` does in a folder, with all that it says in a file."""
    with said.open("wb") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    os.chdir(folder)
    sys.argv = [str(path), *words]
    sys.path[0] = str(path.parent)
    runpy.run_path(str(path), run_name="__main__")


def run(name: str, *arguments: str, cwd: Path) -> str:
    said = cwd / "said.txt"
    process = SERVER.Process(target=script, args=(EXAMPLES / name, arguments, cwd, said))
    process.start()
    process.join()
    assert process.exitcode == 0, said.read_text(encoding="utf-8")
    return said.read_text(encoding="utf-8")


def test_race(tmp_path: Path) -> None:
    check_race(run("race.py", cwd=tmp_path), raced=3)


def test_paper(tmp_path: Path) -> None:
    assert error_in(run("paper.py", cwd=tmp_path)) < 6


def test_lightning(tmp_path: Path) -> None:
    said = run("with_lightning.py", cwd=tmp_path)
    assert "won" in said
    assert float(re.findall(r"tensor\(([\d.]+)\)", said)[0]) < 0.06


def test_transformers(tmp_path: Path) -> None:
    said = run("with_transformers.py", cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said)]
    assert losses[-1] < 0.5 * losses[0]
    assert said.count("dropped at step") == 2


def test_accelerate(tmp_path: Path) -> None:
    check_race(run("with_accelerate.py", cwd=tmp_path), raced=3)


def test_peft(tmp_path: Path) -> None:
    check_race(run("with_peft.py", cwd=tmp_path), raced=6)


def check_race(said: str, raced: int) -> None:
    """So many lanes have raced, and the network has learned."""
    assert said.count("won") + said.count("dropped at step") == raced
    assert error_in(said) < 6


def error_in(said: str) -> float:
    """The test error, in per cent."""
    return float(re.findall(r"test error ([\d.]+)%", said)[0])


def test_tensorboard(tmp_path: Path) -> None:
    assert "logged to here" in run("with_tensorboard.py", "here", cwd=tmp_path)
    assert list((tmp_path / "here").iterdir())


EPOCHS = "20"  # enough to kill a process in the middle
LAST = re.compile(rf"epoch {EPOCHS}: loss ([\d.]+)")


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from process.stdout


def trained_by_two(folder: Path, *, kill_after: str = "") -> str:
    """What two processes say that train as the example's docstring tells; one of them is killed after this line.

    torch's threads now and then abort a process that exits. torchrun then starts both once more, as after the kill,
    and they find that nothing is left to do.
    """
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(EXAMPLES / "with_torchrun.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    said, killed = "", False
    with child([*command, "checkpoint.pt", EPOCHS], variables=variables, cwd=folder, **pipes) as process:
        for line in lines(process):
            said += line
            if kill_after and kill_after in line and not killed:
                os.kill(int(re.findall(r"rank 1 is process (\d+)", said)[0]), signal.SIGKILL)
                killed = True
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def loss_of_two(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What two processes reach that nobody disturbs."""
    (loss,) = LAST.findall(trained_by_two(tmp_path_factory.mktemp("undisturbed")))
    return str(loss)


def test_torchrun(tmp_path: Path, loss_of_two: str) -> None:
    """A process is killed in the middle of the race, since three lanes race for 60 steps and an epoch has 45."""
    said = trained_by_two(tmp_path, kill_after="epoch 1:")
    resumed = [int(epoch) for epoch in re.findall(r"after epoch (\d+)", said)]
    assert len(resumed) >= 4
    assert resumed[:2] == [0, 0]
    assert min(resumed[2:]) >= 1
    assert LAST.findall(said) == [loss_of_two]


@pytest.mark.soak
def test_ray_train(tmp_path: Path, loss_of_two: str) -> None:
    command = [sys.executable, str(EXAMPLES / "with_ray_train.py"), str(tmp_path / "digits"), EPOCHS]
    said, killed = "", False
    settings = {"RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1"}
    alone = {**os.environ, **settings}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=alone
    ) as process:
        try:
            for line in lines(process):
                said += line
                if "training result 5" in line and not killed:
                    os.kill(int(re.findall(r"RayTrainWorker pid=(\d+)", line)[0]), signal.SIGKILL)
                    killed = True
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert killed
    assert len(set(re.findall(r"RayTrainWorker pid=(\d+)", said))) > 2
    assert LAST.findall(said) == [loss_of_two]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_are_short_and_race(name: str) -> None:
    """All but one: `paper.py` has the paper's algorithm."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    assert ("hotswap.Race(" in text or "RaceTrainer(" in text) == (name != "paper.py")


def test_every_example_is_here() -> None:
    names = {path.stem.removeprefix("with_") for path in EXAMPLES.glob("*.py")}
    assert names == {name.removeprefix("test_") for name in globals() if name in {f"test_{n}" for n in names}}
    assert names
