"""Exported tables and studies' files, damaged anywhere: a sentence or equal numbers, and never another error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hotswap.bench.store import BenchStore
from hotswap.errors import HotSwapError
from hotswap.report import load_results
from hotswap.studies import load_study
from hotswap.studies.export import export
from tests.bench.helpers import made
from tests.bench.test_store import tables_of
from tests.studies.test_folder import make
from tests.studies.test_training import TOML

CELLS: tuple[Any, ...] = (
    None,
    "",
    "x",
    -1,
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    2**63,
    True,
    "../../x",
    "1",
    "\x00",
    "[" * 50,
)
"""What a cell of a table may have in place of its value."""


def benchmark(path: Path) -> Path:
    return tables_of(path, made("paper_network", "sgd"), made("paper_network", "adamw", state="diverged"))


def parquet(path: Path) -> Path:
    export(make(path / "study"), path / "tables")
    return path / "tables"


def csv(path: Path) -> Path:
    (path / "tables").mkdir(parents=True)
    export(make(path / "study"), path / "tables" / "all.csv")
    return path / "tables"


def toml(path: Path) -> Path:
    path.mkdir()
    (path / "study.toml").write_text(TOML.format(epochs=3), encoding="utf-8")
    return path


Read = tuple[frozenset[str], str]
"""The numbers, and what is said of them."""


def results_of_study(folder: Path) -> Read:
    source = folder / "all.csv" if (folder / "all.csv").exists() else folder
    found = load_results(source)
    told = (found.metrics.to_csv(), found.arms.to_csv(), found.specs, dict(sorted(found.units.items())))
    return frozenset([repr(told)]), " ".join(found.missing)


def results_of_benchmark(folder: Path) -> Read:
    """Runs may be left out: they are trained again."""
    found = [result for result in BenchStore.open(folder).results().values() if result.state != "damaged"]
    return frozenset(map(repr, found)), ""


def nothing_but_a_study(folder: Path) -> Read:
    """Another study, if the damage makes one."""
    load_study(folder / "study.toml")
    return frozenset(), ""


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Read]]] = {
    "benchmark": (benchmark, results_of_benchmark),
    "parquet": (parquet, results_of_study),
    "csv": (csv, results_of_study),
    "toml": (toml, nothing_but_a_study),
}


def damage(file: Path, chance: random.Random) -> str:
    """Change a file: bytes anywhere, or a value of a table."""
    if file.suffix == ".parquet" and chance.random() < 0.6:
        frame = pd.read_parquet(file)
        column, row, cell = chance.choice(list(frame.columns)), chance.randrange(len(frame)), chance.choice(CELLS)
        kind = chance.choice(("cell", "cell", "cell", "column", "row", "twice", "empty"))
        if kind == "cell":
            values = frame[column].tolist()
            values[row] = cell
            try:
                frame.assign(**{column: values}).to_parquet(file)
            except Exception:  # a column of several kinds of values cannot be written
                frame.assign(**{column: [cell] * len(frame)}).to_parquet(file)
        else:
            changed = {
                "column": lambda: frame.drop(columns=column),
                "row": lambda: frame.drop(index=row),
                "twice": lambda: pd.concat([frame, frame.iloc[[row]]]),
                "empty": lambda: frame.iloc[:0],
            }[kind]()
            changed.to_parquet(file, index=False)
        return f"{file.name}: {kind} {column} {row} {cell!r}"
    whole = file.read_bytes()
    place = chance.randrange(len(whole))
    end = chance.choice([place, place + 1, place + 1, min(len(whole), place + 20), len(whole)])
    file.write_bytes(whole[:place] + chance.randbytes(chance.randrange(3)) + whole[end:])
    return f"{file.name}: bytes {place} to {end}"


def tried(name: str, tmp_path: Path, cases: int) -> int:
    """How many of so many damages are said."""
    build, read = KINDS[name]
    folder = build(tmp_path / "whole")
    expected, _ = read(folder)
    said, chance = 0, random.Random(name)
    for number in range(cases):
        damaged = shutil.copytree(folder, tmp_path / "damaged")
        file = chance.choice(sorted(damaged.iterdir()))
        what = f"case {number}, {damage(file, chance)}"
        sentence = ""
        try:
            found, words = read(damaged)
        except HotSwapError as error:
            sentence = str(error)
        except BaseException as error:
            raise AssertionError(what) from error
        else:
            assert words or found <= expected, what
            said += found != expected
        assert len(sentence) < 2000, what
        assert sentence.isprintable(), what
        said += bool(sentence)
        shutil.rmtree(damaged)
    return said


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", KINDS)
def test_damage_is_said_or_changes_nothing(name: str, tmp_path: Path) -> None:
    assert tried(name, tmp_path, 30) > 10


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_a_thousand_damages_are_said_or_change_nothing(name: str, tmp_path: Path) -> None:
    assert tried(name, tmp_path, 1000) > 300
