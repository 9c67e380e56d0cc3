"""A report says what the results say, of whatever there is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hotswap.bench.methods import FIRST, METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report import write_report
from hotswap.bench.report.figures import draw_overview, draw_profile, draw_workload
from hotswap.bench.report.methods import appearances, label
from hotswap.bench.report.text import report_text
from hotswap.bench.scores import overall, reported, scores
from hotswap.errors import StudyError
from tests.bench.helpers import by_id, made, whole

W, V = "paper_network", "autoencoder"


def test_the_files_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "workload-gone.png").write_bytes(b"old")
    told: list[str] = []
    written = write_report(whole(), tmp_path, told.append)
    names = {
        f"{name}.{kind}"
        for name in ("overview", "profile", f"workload-{W}", f"workload-{V}")
        for kind in ("png", "svg")
    }
    told_too = {*names, "benchmark.md", "benchmark.html"}
    assert {path.name for path in written} == told_too == {path.name for path in tmp_path.iterdir()}
    assert set(told) == told_too
    text = (tmp_path / "benchmark.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([^)]+)\)", text)) == {name for name in names if "png" in name}


def test_what_the_text_says() -> None:
    results = whole()
    text = report_text(results, [])
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| SaLSa |")]
    _, over_all, *by_workload = rows[:4]
    assert any("†" in cell for cell in over_all)  # a run without an end
    assert any("3 diverged or raised an error" in cell for row in by_workload for cell in row)
    assert "| SaLSa, second |" in text
    assert "optimizer adamw" in text
    assert "chosen from seed 100" in text
    assert "paper_network, dog (default), seeds 0, 1, 2, 3, 4: missing. It has missing." in text
    assert "docstring of SaLSA: use_mv=True" in text
    assert " runs on CPU (hotswap 0.1.0, torch 2.13, Python 3.11), 2026-01-02." in text
    assert "whose numbers mean nothing" in text
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_runs_of_which_nothing_was_measured_have_a_report(tmp_path: Path) -> None:
    results = by_id(*(replace(made(W, "sgd", seed, state="failed"), points=()) for seed in range(5)))
    written = write_report(results, tmp_path)
    assert [path.name for path in written] == ["benchmark.html", "benchmark.md"]
    assert "seeds 0, 1, 2, 3, 4: failed." in (tmp_path / "benchmark.md").read_text(encoding="utf-8")


def test_a_workload_that_is_too_easy_is_warned_of() -> None:
    assert "too easy" not in report_text(whole(), [])
    easy = [made(W, "adamw", seed, curve=[1.0, *[0.01] * 13]) for seed in range(5)]
    assert f"`{W}` is too easy: AdamW's default reaches its reference within a tenth" in report_text(
        {**whole(), **by_id(*easy)}, []
    )


def test_little_or_nothing_can_be_reported(tmp_path: Path) -> None:
    written = write_report({}, tmp_path)
    assert [path.name for path in written] == ["benchmark.html", "benchmark.md"]
    assert "Scores are over 0 of 8 workloads." in written[1].read_text(encoding="utf-8")
    lost = by_id(made(W, "sgd", state="missing"), made(V, "sgd", state="failed"))
    assert {path.name for path in write_report(lost, tmp_path)} == {
        "benchmark.html",
        "benchmark.md",
        f"workload-{V}.png",
        f"workload-{V}.svg",
    }
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot be written to"):
        write_report({}, tmp_path / "file" / "below")


def test_every_method_and_configuration_is_drawn() -> None:
    results = whole()
    figure = draw_workload(W, reported(results))
    assert figure is not None
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == len(METHODS)  # one is not installed, and one has two configurations
    assert names == sorted(names, key=lambda name: float(name.rsplit(": ", 1)[1]))
    profile = draw_profile(scores(results))
    assert profile is not None
    assert len(profile.legends[0].get_texts()) == len(METHODS) - 1
    assert draw_workload("recurrent_text", reported(results)) is None
    assert draw_profile([]) is None


def test_no_two_methods_look_alike() -> None:
    drawn = appearances([*METHODS, "mine", "yours"])
    looks = [shown.look for shown in drawn.values()]
    assert len({(look.colour, look.dashes, look.marker, look.filled) for look in looks}) == len(METHODS) + 2
    assert list(drawn)[-1] in {name for name, method in METHODS.items() if method.ours}  # on top


def test_all_scores_at_a_glance() -> None:
    found = scores(whole())
    figure = draw_overview(found)
    assert figure is not None
    (axes,) = figure.axes
    rows = [row for row in overall(found) if row.method != REFERENCE]
    assert [tick.get_text() for tick in axes.get_yticklabels()][::-1] == [label(row.method) for row in rows]
    lines: dict[str, list[tuple[float, int, bool]]] = {"o": [], "|": []}
    for line in axes.lines:
        if (mark := str(line.get_marker())) in lines:
            hollow = line.get_markerfacecolor() == "white"
            lines[mark].append((float(line.get_xdata()[0]), len(rows) - 1 - int(line.get_ydata()[0]), hollow))
    places = {row.method: place for place, row in enumerate(rows)}
    drawn = [(s.ratio, places[s.method], s.marked) for s in found if s.configuration == FIRST and s.method in places]
    assert sorted(lines["o"]) == sorted(drawn)
    assert any(hollow for *_, hollow in drawn)
    assert sorted(lines["|"]) == sorted((row.mean, place, False) for place, row in enumerate(rows))
    assert draw_overview([]) is None
