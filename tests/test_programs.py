"""The runner of other people's programs applies diffs, counts lines and reads numbers; the programs are not here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import benchmarks.programs.__main__ as runner
from benchmarks.programs.diffs import DiffError, Hunk, applied, changed_lines, hunks_of
from benchmarks.programs.listed import COMMITS, PROGRAMS, Program
from benchmarks.programs.stand_ins import CartPole, corpus

PROGRAM = """\
import os
rate = 0.1
download()
print("loss 9.0")
print("loss", rate + int(os.environ["SEED"]))
"""
DATA = """\
--- a/main.py
+++ b/main.py
@@ -3 +2,0 @@
-download()
"""
RACE = """\
--- a/main.py
+++ b/main.py
@@ -1,0 +2 @@
+import math
@@ -2 +3,2 @@
-rate = 0.1
+rate = 0.2
+rate += math.pi - math.pi
"""
TOY = Program("toy", "some/one", "toy", "main.py", "", "", "", r"loss (\S+)", "loss", "SGD", "`step(loss)`")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the diffs and the sources of a toy program, which the runner knows."""
    monkeypatch.setattr(runner, "HERE", tmp_path)
    (tmp_path / "toy.data.diff").write_text(DATA)
    (tmp_path / "toy.race.diff").write_text(RACE)
    (tmp_path / "sources" / "some+one" / "toy").mkdir(parents=True)
    (tmp_path / "sources" / "some+one" / "toy" / "main.py").write_text(PROGRAM)
    return tmp_path


def test_diffs_with_the_numbers_of_the_original_are_applied_together(toy: Path) -> None:
    data, race = hunks_of(toy / "toy.data.diff"), hunks_of(toy / "toy.race.diff")
    head, rest = PROGRAM.split("rate = 0.1\ndownload()\n")
    assert applied(PROGRAM, [*data, *race]) == f"{head}import math\nrate = 0.2\nrate += math.pi - math.pi\n{rest}"
    assert (changed_lines(data), changed_lines(race)) == (1, 3)


@pytest.mark.parametrize("hunks", [[Hunk("main.py", 2, ["other"], [])], [Hunk("main.py", 2, ["rate = 0.1"], [])] * 2])
def test_a_diff_that_does_not_fit_is_refused(hunks: list[Hunk]) -> None:
    with pytest.raises(DiffError, match=r"does not fit main\.py, line 2"):
        applied(PROGRAM, hunks)


def test_a_diff_with_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text(DATA + " print()\n")
    with pytest.raises(DiffError, match="diff -U0"):
        hunks_of(tmp_path / "x.diff")


def test_a_program_runs_with_its_diffs_and_its_last_number_is_kept_once(toy: Path) -> None:
    runs = [runner.Run(TOY, optimizer, 3) for optimizer in ("own", "race")]
    runner.run_all(runs, toy / "sources", toy / "out", "cpu", jobs=2)
    own, race = (json.loads((toy / "out" / run.file).read_text()) for run in runs)
    assert (own["number"], own["lines"], own["data_lines"]) == (3.1, 0, 1)
    assert (race["number"], race["lines"], race["data_lines"]) == (3.2, 3, 1)
    assert race["processor_seconds"] >= 0
    (toy / "sources" / "some+one" / "toy" / "main.py").unlink()
    runner.run_all(runs, toy / "sources", toy / "out", "cpu", jobs=1)  # both have ended
    runner.keep(toy / "out", toy / "kept")
    assert json.loads((toy / "kept" / "programs-cpu.json").read_text())["rows"] == [own, race]


def test_a_program_that_fails_has_an_error_and_runs_again(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (toy / "toy.data.diff").unlink()
    run = runner.Run(TOY, "own", 0)
    runner.run_all([run], toy / "sources", toy / "out", "cpu", jobs=1)
    stored = json.loads((toy / "out" / run.file).read_text())
    assert stored["number"] is None
    assert "name 'download' is not defined" in stored["error"]
    (toy / "toy.data.diff").write_text(DATA)
    runner.run_all([run], toy / "sources", toy / "out", "cpu", jobs=1)
    assert json.loads((toy / "out" / run.file).read_text())["number"] == 0.1
    assert "toy~own~0.json: 0.1" in capsys.readouterr().out


def test_the_code_of_a_notebook_is_run(toy: Path) -> None:
    cells = [{"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code", "source": [PROGRAM]}]
    (toy / "book.ipynb").write_text(json.dumps({"cells": cells}))
    script = runner.changed(TOY._replace(name="book", script="book.ipynb"), "own", toy)
    assert (script.name, script.read_text()) == ("book.py", PROGRAM)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_every_program_has_its_diffs_and_a_pattern_with_one_number(program: Program) -> None:
    assert program.source in COMMITS
    assert re.compile(program.number).groups == 1
    for kind in ("race", "prodigy", "schedule_free"):
        assert changed_lines(runner.hunks(program, kind)) > 0, kind


def test_a_pole_that_is_pushed_to_one_side_falls_and_one_that_is_balanced_stands_longer() -> None:
    def stands(policy: object) -> int:
        pole = CartPole()
        state, _ = pole.reset(seed=1)
        for step in range(1000):
            state, _, fallen, ended, _ = pole.step(policy(state))  # type: ignore[operator]
            if fallen or ended:
                return step + 1
        raise AssertionError("an episode has at most 500 steps")

    assert stands(lambda _: 1) < 15
    assert stands(lambda state: int(state[2] + state[3] > 0)) > 150


def test_a_corpus_has_characters_as_words(tmp_path: Path) -> None:
    corpus(str(tmp_path), 1000, 100)
    words = (tmp_path / "train.txt").read_text().split()
    assert len(words) > 500
    assert {len(word) for word in words} == {1}
    assert (tmp_path / "valid.txt").read_text() == (tmp_path / "test.txt").read_text()
