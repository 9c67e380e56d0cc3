"""Names in tables and ledgers of a benchmark that lead elsewhere are refused, and words stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hotswap.bench.exchange import export_results
from hotswap.bench.report.text import report_text
from hotswap.bench.runs import Result
from hotswap.bench.store import BenchStore
from hotswap.cli import app
from tests.bench.helpers import by_id, made, whole
from tests.foreign import STRANGE, refused, tree

W = "paper_network"
KINDS = ("workload", "method", "configuration")
EVIL = "</script><script>alert(1)</script> | `a` [a](http://b) \n# c & <img src=x onerror=alert(1)>"


def named(kind: str, name: str) -> list[Result]:
    """Two runs, of which the second has this name; their digests are right."""
    good = made(W, "adamw")
    return [good, replace(good, run=replace(good.run, **{kind: name}))]


@pytest.fixture
def forged(tmp_path: Path) -> Any:
    """A benchmark's folder and its tables, written by a program that checks no names."""

    def forge(results: list[Result]) -> tuple[Path, Path]:
        home = tmp_path / "home"
        store = BenchStore.create(home / "bench", "smoke")
        for number, result in enumerate(results):
            store.units.store(f"run-{number}", result.plain())
        export_results(by_id(*results).values(), home / "tables")
        return home / "bench", home / "tables"

    return forge


NAMED = [(KINDS[place % len(KINDS)], name) for place, name in enumerate(STRANGE.values())]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_such_a_name_is_refused_by_every_command(forged: Any, kind: str, name: str, tmp_path: Path) -> None:
    folder, tables = forged(named(kind, name))
    said = refused("bench", "report", tables, "--out", tmp_path / "home" / "rep", home=tmp_path)
    where = re.escape(str(tables))
    assert re.fullmatch(rf"{where}/(runs|points)\.parquet, row \d+: the {kind} is called .+, but a name has .+", said)
    assert "letters (a-z, A-Z), digits, '_', '-' and '.' only, at most 100" in said
    run = ("run", "--out", folder, "--size", "smoke", "--workload", W, "--method", "sgd", "--stop-after", 0.001)
    for words in (
        ("status", folder),
        ("report", folder, "--out", tmp_path / "home" / "rep"),
        ("export", folder, tmp_path / "home" / "exported"),
        run,
    ):
        said = refused("bench", *words, home=tmp_path)
        assert said.startswith(f"{folder}/units/run-1.hotswap: the {kind} is called ")


def test_names_of_somebodys_own_are_read(forged: Any, tmp_path: Path) -> None:
    _, tables = forged([*named("workload", "mine.of-2026_" + "x" * 80), *named("method", "-A.b_3")])
    done = CliRunner().invoke(app, ["bench", "report", str(tables), "--out", str(tmp_path / "rep")])
    assert done.exit_code == 0, done.output
    assert any("mine.of-2026_" in name for name in tree(tmp_path / "rep"))
    assert "-A.b_3" in (tmp_path / "rep" / "benchmark.md").read_text(encoding="utf-8")


def evil(results: Mapping[str, Result]) -> dict[str, Result]:
    """All that is free in a result is evil: its reason, its origin, and the settings on somebody's own workload."""
    origin = dict.fromkeys(("hotswap", "torch", "python", "device", "date", "command"), EVIL)
    changed = [
        replace(
            result,
            reason=EVIL if result.state != "finished" else "",
            origin=origin,
        )
        for result in results.values()
    ]
    theirs = [
        replace(one, run=replace(one.run, workload="theirs"), settings={**one.settings, EVIL: EVIL})
        for one in changed
        if one.run.workload == W
    ]
    return by_id(*changed, *theirs)


def test_words_stay_text_in_markdown() -> None:
    text = report_text(evil(whole()), ["overview"])
    assert "onerror" in text
    assert "<" not in text
    assert not re.search(r"^# c", text, re.MULTILINE)
    assert "[a](" not in text
    assert "\\`a\\`" in text
    assert "&amp;" in text
    assert text.count("onerror") == text.count("&lt;img src=x onerror=alert(1)&gt;")


def test_words_stay_data_on_the_page(forged: Any, tmp_path: Path) -> None:
    results = evil(whole())
    lone = next(iter(results))
    results[lone] = replace(results[lone], origin={**results[lone].origin, "device": "half \ud800 of a pair"})
    _, tables = forged(list(results.values()))
    done = CliRunner().invoke(app, ["bench", "report", str(tables), "--out", str(tmp_path / "rep")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "rep" / "benchmark.html").read_text(encoding="utf-8")
    stored = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert stored is not None
    assert "<" not in stored[1]
    assert any(EVIL in line for line in json.loads(stored[1])["benchmark"]["origins"])
    assert "<img" not in page
