"""One command makes everything, of whatever there is."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.errors import StudyError
from hotswap.report import load_results, write_report
from hotswap.report.figures.paper import figure_1_data
from hotswap.report.write import FILES
from hotswap.studies import PAPER
from tests.report.algorithms import Greedy, Nadam, further_rows, registered
from tests.report.made_up import results, row, timed


def whole_study() -> list[dict[str, object]]:
    rows = []
    for epoch in (10, 200, 500):
        for batch in (64, 128):
            rows += [row("ducb", batch, seed, epoch, trials=2.0) for seed in (0, 1)]
            rows += [row("adadelta", batch, seed, epoch) for seed in (0, 1)]
            rows += [row("sgd", batch, seed, epoch, lr=rate) for seed in (0, 1) for rate in (0.1, 1.0)]
    return rows


@pytest.mark.usefixtures("coarse")
def test_everything_of_a_whole_study(tmp_path: Path) -> None:
    rows = whole_study()
    arms = [{"run": r["run"], "epoch": r["epoch"], "arm": 3, "count": 5} for r in rows if r["algorithm"] == "ducb"]
    timing = [timed("sgd", 64, 0, 1.0), timed("ducb", 64, 100, 2.0), timed("ducb", 64, 500, 2.5)]
    made = results(rows, arms=arms, timing=timing, curves=[r for r in rows if r["seed"] == 0], specs=(PAPER,))
    (tmp_path / "figure-2.png").write_bytes(b"old")
    written = write_report(made, tmp_path)
    assert {path.name for path in written} == set(FILES) == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.glob("*.png"):
        picture = matplotlib.image.imread(path)
        assert min(picture.shape[:2]) > 100
        assert picture[..., :3].std() > 0.02  # something is drawn


def test_a_study_of_further_algorithms(tmp_path: Path) -> None:
    """Two more that are registered and one that is not: they are in all figures, tables and sentences."""
    rows = [*whole_study(), *further_rows(), *(row("stranger", epoch=epoch) for epoch in (10, 200, 500))]
    timing = [timed("sgd", 64, 0, 1.0), timed("greedy", 64, 500, 2.0), timed("stranger", 64, 0, 2.0)]
    arms = [{"run": r["run"], "epoch": r["epoch"], "arm": 1, "count": 5} for r in rows if r["algorithm"] == "greedy"]
    made = results(rows, arms=arms, timing=timing, curves=[r for r in rows if r["seed"] == 0], specs=(PAPER,))
    with registered(nadam=Nadam, greedy=Greedy):
        write_report(made, tmp_path)
    figure = (tmp_path / "figure-1.svg").read_text(encoding="utf-8")
    for text in ("hot-swapped Greedy: 2 settings, by batch size", "NAdam: 8 settings", "stranger: 1 setting"):
        assert text in figure
    assert "#009e73" in figure  # the colour that NAdam asks for
    clock = (tmp_path / "figure-2.svg").read_text(encoding="utf-8")
    for text in (
        "Greedy, batch 64",
        "NAdam, batch 128, lr 0.1, decay1 0.9",
        "stranger, batch 64",
        "SGD, batch 64, rate 1",
    ):
        assert text in clock
    assert "Greedy, epoch 500 / SGD" in (tmp_path / "table-1.md").read_text(encoding="utf-8")
    assert '"label":"NAdam"' in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_study_of_nothing_is_sentences(tmp_path: Path) -> None:
    (tmp_path / "figure-1.png").write_bytes(b"of an earlier report")
    written = write_report(results(missing=("There is nothing.",)), tmp_path)
    assert {path.name for path in written} == {"claims.md", "index.html"} == {path.name for path in tmp_path.iterdir()}
    assert "- There is nothing." in (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert "There is nothing." in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    made = results(whole_study(), specs=(PAPER,))
    write_report(made, tmp_path / "one")
    write_report(made, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StudyError, match="The report cannot be written to"):
        write_report(results(), tmp_path / "file")


def test_figure_1_shows_every_setting_at_both_epochs() -> None:
    data = figure_1_data(load_results().metrics)
    assert sorted(data) == [200, 500]
    for table in data.values():
        assert table["algorithm"].value_counts().to_dict() == {"sgd": 360, "adadelta": 5, "ducb": 5}
        assert (table["seeds"] == 3).all()
        assert (table["train_nll_min"] <= table["train_nll"]).all()
        assert (table["test_error"] <= table["test_error_max"]).all()


@pytest.mark.usefixtures("undrawn")
def test_the_command_reports_on_the_shipped_study(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert "partly reproduced" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


@pytest.mark.usefixtures("undrawn")
def test_a_study_of_ones_own_is_not_the_papers(tmp_path: Path) -> None:
    made = results(whole_study(), specs=(PAPER,))
    for name, cautious in ((PAPER.name, False), ("mine", True)):
        write_report(replace(made, name=name), tmp_path / name)
        claims = (tmp_path / name / "claims.md").read_text(encoding="utf-8")
        assert claims.startswith("The study mine is not the paper's") == cautious


@pytest.mark.usefixtures("undrawn")
def test_a_section_that_is_handed_in_is_on_the_page(tmp_path: Path) -> None:
    made = results([row("sgd", test_error=0.03)])
    for benchmark, expected in (
        (None, '"benchmark":null'),
        ({"verdict": ["a word"]}, '"benchmark":{"verdict":["a word"]}'),
    ):
        write_report(made, tmp_path, benchmark=benchmark)
        assert expected in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_what_cannot_be_drawn_is_said_with_its_reason(tmp_path: Path) -> None:
    rows = [
        row("sgd", test_error=0.03),
        row("hotswap", batch=64),
        row("hotswap", batch=128, test_error=0.0),
        row("ducb", train_nll=math.nan),
    ]
    write_report(results(rows), tmp_path)
    figure = (tmp_path / "figure-1.svg").read_text(encoding="utf-8")
    assert "1 of 4 settings diverged: not shown; 1 of 4 settings with a test error of 0: not shown" in figure
    assert "hot swapping: 2 settings" in figure
    assert "hot-swapped hot swapping" not in figure
