"""The page "Extending": each of its files is short, works, and can be resumed."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.errors import SettingError

FILES = sorted((Path(__file__).parents[1] / "examples" / "extending").glob("*.py"))
LOAD = [word for file in FILES for word in ("--load", str(file))]

OPTIMIZER = """
import copy, sys, torch
from pathlib import Path
from torch.nn.functional import cross_entropy
import hotswap
from hotswap.extensions import load_file
from hotswap.testing import check_bandit, check_search

for file in sys.argv[1:]:
    load_file(Path(file))
bandit, search = hotswap.bandits.BANDITS["mostly_greedy"](curiosity=0.3), hotswap.searches.SEARCHES["up_then_down"]()
check_bandit(bandit)
check_search(search)

def trained(seed, resumed):
    torch.manual_seed(0)
    model = hotswap.networks.multilayer_perceptron((4, 8, 3), seed=0)
    make = lambda: hotswap.HotSwapSGD(model, hotswap.log_grid(10, 1e-3, 9), bandit=bandit, search=search, seed=seed)
    optimizer, starts = make(), []
    for number in range(60):
        if number == 30 and resumed:
            kept = optimizer.state_dict()
            optimizer = make()
            optimizer.load_state_dict(kept)
        x = torch.randn(16, 4)
        optimizer.step(lambda: cross_entropy(model(x), x[:, :3].argmax(1)))
        starts.append(optimizer.last_step.start)
    return starts, [parameter.tolist() for parameter in model.parameters()], optimizer.last_step.loss_before

assert trained(0, resumed=True) == trained(0, resumed=False)
assert trained(0, resumed=False)[0] != trained(1, resumed=False)[0], "another seed draws other numbers"
assert trained(0, resumed=False)[2] < 0.8
"""

STUDY = """
name = "mine"
dataset = "stripes"
batch_sizes = [50]
seeds = [0, 1]
epochs = 4

[network]
name = "normalised"

[lion]
lr = [0.01, 0.001]

[curious]
algorithm = "hotswap"
bandit = { name = "mostly_greedy", curiosity = 0.2 }
search = "up_then_down"
high = 10.0
low = 0.001
count = 9
"""


def python(*words: str, cwd: Path) -> str:
    """Run Python in a process of its own: what the files register must not reach other tests."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMANDS = """
import json, sys
from hotswap.cli import app

load, commands = json.loads(sys.argv[1])
for words in commands:
    print("$", *words)
    app([*load, *words], standalone_mode=False)
    load = []  # once in a process
"""


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with a study of all that the files add, trained at once and in two parts; and what each command said.

    The commands run in one process: most of the time goes into starting one.
    """
    folder = tmp_path_factory.mktemp("studied")
    (folder / "mine.toml").write_text(STUDY, encoding="utf-8")
    train = ["study", "run", "mine.toml", "--out"]
    commands = [
        [*train, "whole"],
        ["study", "export", "whole", "whole.csv"],
        [*train, "parts", "--epochs", "2"],
        [*train, "parts"],
        ["study", "export", "parts", "parts.csv"],
        ["study", "new", "new.toml"],
    ]
    return folder, python("-c", COMMANDS, json.dumps([LOAD, commands]), cwd=folder).split("$ ")[1:]


def rows(file: Path) -> list[dict[str, str]]:
    """What a study has measured, without its clock."""
    with file.open() as stream:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(stream)]


def test_they_are_five_and_short() -> None:
    assert [file.stem for file in FILES] == ["algorithm", "bandit", "dataset", "network", "search"]
    for file in FILES:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 40


def test_bandit_and_search_in_an_optimizer_that_is_resumed(tmp_path: Path) -> None:
    python("-c", OPTIMIZER, *map(str, FILES), cwd=tmp_path)


def test_all_of_them_in_a_study_that_is_resumed(studied: tuple[Path, list[str]]) -> None:
    folder, said = studied
    assert "lion-b50: going on from the checkpoint after epoch 2" in said[3]
    expected = rows(folder / "whole.csv")
    assert rows(folder / "parts.csv") == expected
    last = {row["run"]: row for row in expected if row["epoch"] == "4"}
    names = ("curious-b50", "lion-b50-lr0.01", "lion-b50-lr0.001")
    assert set(last) == {f"{name}-s{seed}" for name in names for seed in "01"}
    assert all(float(row["test_error"]) < 0.3 for run, row in last.items() if run != "lion-b50-lr0.001")
    assert float(last["curious-b50-s0"]["trials"]) > 1


def test_the_example_of_a_study_has_what_the_files_add(studied: tuple[Path, list[str]]) -> None:
    text = (studied[0] / "new.toml").read_text(encoding="utf-8")
    assert "[lion]" in text
    assert '"stripes"' in text
    assert 'name = "normalised"' in text


def test_without_the_files_a_sentence_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY, encoding="utf-8")
    words = [sys.executable, "-m", "hotswap", "study", "run", "mine.toml", "--out", "x"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Error: mine.toml: " in done.stderr
    assert "hotswap --load FILE.py" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "There is no Python file"),
        ("import hotswap\n\nhotswap.nothing\n", "line 3 cannot be loaded: AttributeError"),
        ("def (", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match=message):
        CliRunner().invoke(app, ["--load", str(tmp_path / "mine.py"), "data", "list"], catch_exceptions=False)
