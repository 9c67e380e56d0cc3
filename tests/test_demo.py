"""The demo: the same start and the same cost for everyone; a table, two sentences and a figure that are true."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from typer.testing import CliRunner

from hotswap import DataError
from hotswap.bench.workloads import Task
from hotswap.cli import app
from hotswap.data import Dataset, load_digits
from hotswap.demo import training
from hotswap.demo.figure import APART, RACE, draw, save
from hotswap.demo.training import Outcome, Point, Rate, contenders, task_of, train
from hotswap.demo.verdict import judge
from hotswap.race import Standing, Standings

PNG = b"\x89PNG\r\n\x1a\n"


def short() -> Task:
    return task_of(load_digits(), epochs=10, batch_size=16)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> Dataset:
        raise DataError("MNIST cannot be had.")

    monkeypatch.setattr(training, "load_mnist", unreachable)


@pytest.fixture(scope="module")
def trained() -> dict[str, tuple[Outcome, list[float]]]:
    """What everyone did on the digits, and the losses on the way."""
    found = {}
    for contender in contenders():
        losses: list[float] = []
        outcome = train(contender, short(), lambda _, loss, losses=losses: losses.append(loss))
        found[contender.name] = outcome, losses
    return found


# --- training ---------------------------------------------------------------------------------------------------------


def test_everyone_has_the_same_start_and_the_same_cost(trained: dict[str, tuple[Outcome, list[float]]]) -> None:
    total = short().steps
    assert len({losses[0] for _, losses in trained.values()}) == 1
    for name, (outcome, losses) in trained.items():
        assert outcome.steps == len(losses)
        assert [point.passes for point in outcome.points] == sorted({point.passes for point in outcome.points})
        assert outcome.end.passes == outcome.passes
        if name == "HotSwapSGD":  # its last step may cost more than is left
            assert total <= outcome.passes < total + 1 + 33 / 3
            assert outcome.steps < 0.8 * total
        else:
            assert outcome.passes == outcome.steps == total


def test_the_race_is_the_one_that_a_newcomer_would_write(trained: dict[str, tuple[Outcome, list[float]]]) -> None:
    race, _ = trained["Race"]
    assert race.standings is not None
    winner = race.standings[0]
    assert winner.why == "won"
    assert any(lane.dropped_at for lane in race.standings)
    assert race.rates == [winner.rate]
    assert sum(lane.steps for lane in race.standings) == race.steps
    assert [name for name, (one, _) in trained.items() if one.standings] == ["Race"]


def test_measuring_changes_nothing(
    trained: dict[str, tuple[Outcome, list[float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "POINTS", 2)
    again: list[float] = []
    outcome = train(contenders()[0], short(), lambda _, loss: again.append(loss))
    assert len(outcome.points) == 2
    race, losses = trained["Race"]
    assert again == losses
    assert outcome.end == race.end


def test_prodigy_takes_part_where_it_is_installed(
    offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ["demo", "--epochs", "5", "--batch-size", "16", "--out", str(tmp_path)]
    monkeypatch.setattr(training, "find_spec", lambda _: None)
    without = CliRunner().invoke(app, command).output
    assert "Prodigy is left out: it needs prodigyopt, which is not installed." in without
    assert "| Prodigy" not in (tmp_path / "results.md").read_text()
    assert [one.name for one in contenders()] == ["Race", "AdamW", "HotSwapSGD"]
    monkeypatch.setattr(training, "find_spec", lambda _: object())
    assert [one.name for one in contenders()] == ["Race", "AdamW", "Prodigy", "HotSwapSGD"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_demo_falls_back_to_digits_says_so_and_draws(
    offline: None, trained: dict[str, tuple[Outcome, list[float]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "train", lambda contender, *_: trained[contender.name][0])  # as it has trained above
    done = CliRunner().invoke(app, ["demo", "--epochs", "10", "--batch-size", "16", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "Falling back to scikit-learn's 8x8 digits" in done.output
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.png", "results.md"]
    written = (tmp_path / "results.md").read_text()
    total = str(short().steps)
    for name in ("Race", "AdamW"):
        row = next(line for line in written.splitlines() if line.startswith(f"| {name} |"))
        assert row.count(f"| {total} ") == 2  # passes and steps
    assert "| AdamW | 0.001 default |" in written
    standings, sentences = (text.strip() for text in (written.split("```")[1], written.split("\n\n")[2]))
    for line in standings.splitlines()[1:]:
        assert line in done.output
    assert "ended with the lowest training loss" in sentences
    assert " ".join(sentences.split()) in " ".join(done.output.split())


def test_a_demo_that_is_too_short_for_a_race_says_so(offline: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--epochs", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "The run was too short for a race, so AdamW" in said
    assert " alone |" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)


# --- the sentences ----------------------------------------------------------------------------------------------------


def outcome(name: str, loss: float, error: float, seconds: float = 10.0) -> Outcome:
    points = [Point(100.0, 2.0, 0.5), Point(1000.0, 1.0, 0.2), Point(10_000.0, loss, error)]
    return Outcome(name, Rate.DEFAULT, points, steps=10_000, passes=10_000, seconds=seconds, rates=[0.1])


def race(loss: float, error: float, *dropped: tuple[str, int, int]) -> Outcome:
    """A race that dropped lanes: their names, their steps, and when."""
    lanes = [Standing(1, "AdamW 0.01", "AdamW", 0.01, 9000, 0.1, None, "won")]
    lanes += [Standing(2, name, "AdamW", 0.1, steps, 0.2, at, "dropped") for name, steps, at in dropped]
    found = outcome("Race", loss, error, seconds=12.0)
    found.standings = Standings(lanes)
    return found


LANES = (("AdamW 0.1", 200, 500), ("AdamW 1", 300, 2000), ("SGD 1", 0, 0))  # the last one never raced


def test_the_sentences_say_who_ended_lowest_and_what_the_race_cost() -> None:
    verdict = judge([race(0.01, 0.016, *LANES), outcome("AdamW", 0.05, 0.022)], 10_000)
    assert str(verdict) == (
        "The race ended with the lowest training loss, 5.0 times lower than AdamW's; it also had the lowest test "
        "error, 1.60 %, which is below AdamW's by more than chance explains. The race spent 5 % of its passes on 2 "
        "lanes that it dropped and kept AdamW 0.01; it took 1.20 times AdamW's processor time."
    )


def test_the_sentences_do_not_flatter_the_race() -> None:
    verdict = judge([race(0.01, 0.021, *LANES), outcome("AdamW", 0.05, 0.020), outcome("Prodigy", 0.008, 0.03)], 10_000)
    assert verdict.loss is not None
    assert verdict.error is not None
    assert (verdict.loss.name, verdict.loss.next) == ("Prodigy", "the race")
    assert (verdict.error.name, verdict.error.level) == ("AdamW", ("the race",))
    assert str(verdict).startswith(
        "Prodigy ended with the lowest training loss, 20 % below the race's; AdamW had the lowest test error, 2.00 %, "
        "too close to the race to tell apart on 10,000 test images."
    )


def test_fewer_test_images_tell_less() -> None:
    many, few = (
        judge([race(0.1, 0.02), outcome("AdamW", 0.2, 0.03), outcome("Prodigy", 0.3, 0.04)], n) for n in (10_000, 300)
    )
    assert many.error is not None
    assert few.error is not None
    assert (many.error.level, few.error.level) == ((), ("AdamW", "Prodigy"))
    assert "too close to AdamW and Prodigy" in str(few)


def test_losses_that_are_nearly_equal_are_not_ranked() -> None:
    verdict = judge(
        [race(0.01003, 0.016, *LANES), outcome("AdamW", 0.05, 0.022), outcome("Prodigy", 0.01, 0.03)], 10_000
    )
    assert str(verdict).startswith("Prodigy ended with the lowest training loss, within 1 % of the race; the race had")


def test_a_run_without_a_race_and_runs_that_failed_are_told() -> None:
    short = judge([race(0.1, 0.02, ("AdamW 0.1", 0, 0)), outcome("AdamW", 0.2, 0.03)], 10_000)
    assert "The run was too short for a race, so AdamW 0.01 trained alone" in str(short)
    failed = judge([race(math.nan, math.nan), outcome("AdamW", 0.2, 0.03)], 10_000)
    assert str(failed).startswith("No two of them learned anything")


# --- the figure -------------------------------------------------------------------------------------------------------


def named(axes: Axes) -> dict[str, float]:
    """The names beside the curves, and how high they stand."""
    return {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_position()[0] == 1.015}


def test_the_figure_names_every_curve_and_marks_where_the_race_dropped_lanes() -> None:
    outcomes = [race(0.010, 0.016, *LANES), outcome("AdamW", 0.011, 0.0161), outcome("Prodigy", 0.0105, 0.0162)]
    figure = draw(outcomes, "made up")
    for axes in figure.axes:
        heights = sorted(named(axes).values())
        assert set(named(axes)) == {"Race", "AdamW", "Prodigy"}
        assert all(b - a >= 0.99 * APART for a, b in pairwise(heights))
        assert len({line.get_color() for line in axes.get_lines()}) == 3
        rings = [one for one in axes.collections if isinstance(one, PathCollection)]
        assert sorted(float(ring.get_offsets()[0][0]) for ring in rings) == [500.0, 2000.0]  # and not 0
        assert all(to_rgb(ring.get_edgecolor()[0][:3]) == to_rgb(RACE) for ring in rings)
        said = " ".join(text.get_text() for text in axes.texts)
        assert "AdamW 0.1\n dropped" in said
        assert "SGD 1" not in said


def test_one_measurement_is_seen_and_failed_runs_end() -> None:
    single = Outcome("AdamW", Rate.DEFAULT, [Point(10.0, 1.0, 0.1)])
    failed = Outcome("SGD", Rate.DEFAULT, [Point(10.0, 1.0, 0.1), Point(20.0, math.inf, math.nan)])
    lost = Outcome("lost", Rate.DEFAULT, [Point(10.0, math.nan, math.nan)])
    left, _ = draw([single, failed, lost], "").axes
    assert [line.get_marker() for line in left.get_lines()] == ["o", "o"]
    assert set(named(left)) == {"AdamW", "SGD"}


def test_a_figure_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure, target = draw([race(0.01, 0.02, *LANES)], "made up"), tmp_path / "new" / "figure.png"

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(type(figure), "savefig", broken)
        with pytest.raises(OSError, match="disk full"):
            save(figure, target)
    assert list(target.parent.iterdir()) == []
    save(figure, target)
    assert target.read_bytes().startswith(PNG)
