"""Tables of the races on the paper's problem, and the study's numbers beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from hotswap.errors import StudyError
from hotswap.files import replacing, write_text
from hotswap.report.comparison import tenth
from hotswap.report.summaries import settings_among
from hotswap.store.shipped import shipped
from hotswap.store.tables import write_table

__all__ = ["beside", "export", "table"]

METRICS, PROVENANCE = "metrics.parquet", "provenance.json"
MEASURES = ("train_nll", "test_error")
RACE = "race"


def export(folder: Path, target: Path) -> str:
    """Write a row for each run and recorded epoch, and where each run comes from; a sentence."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("race-*.json"))]
    if not runs:
        raise StudyError(f"{folder} has no finished run; train some first.")
    rows, sources = [], {}
    for run in runs:
        name = f"race-e{run['epochs']}-b{run['batch_size']}-s{run['seed']}"
        key = {"run": name, "algorithm": RACE, "epochs": run["epochs"]}
        key |= {"batch_size": run["batch_size"], "seed": run["seed"]}
        rows += [{**key, **dict(zip(run["columns"], row, strict=True))} for row in run["rows"]]
        sources[name] = {part: run[part] for part in ("winner", "standings", "precision", "graphs", "origin")}
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("epochs", "batch_size", "seed", "epoch", "steps"), "int64"))
    target.mkdir(parents=True, exist_ok=True)
    with replacing(target / METRICS) as temporary:
        write_table(frame, temporary)
    write_text(
        target / PROVENANCE, json.dumps({"study": "races on the paper's problem", "runs": sources}, indent=1) + "\n"
    )
    return f"Wrote {len(runs)} runs into {target}."


def beside(races: pd.DataFrame, study: pd.DataFrame, epochs: int) -> dict[str, pd.DataFrame]:
    """The races of so many epochs at their end, and what the study's algorithms have after as many."""
    theirs = study[study["epoch"] == epochs]
    sgd = theirs[theirs["algorithm"] == "sgd"]
    settings = sgd.groupby(settings_among(sgd), dropna=False)[list(MEASURES)].median().reset_index()
    sizes = max(1, settings["batch_size"].nunique())
    best = settings.sort_values("train_nll").groupby("batch_size").head(tenth(len(settings) // sizes))
    return {
        "race": races[(races["epochs"] == epochs) & (races["epoch"] == epochs)],
        "the paper's algorithm": theirs[theirs["algorithm"] == "ducb"],
        "AdaDelta": theirs[theirs["algorithm"] == "adadelta"],
        "median of SGD's best tenth": best,
    }


def table(folder: Path) -> str:
    """Medians over seeds, by batch size, for each length of the races."""
    if not (folder / METRICS).is_file():
        raise StudyError(f"{folder} has no {METRICS}; --export writes it.")
    races, study = pd.read_parquet(folder / METRICS), pd.read_parquet(shipped() / METRICS)
    sources = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["runs"]
    texts = []
    for epochs in sorted(races["epochs"].unique()):
        found = beside(races, study, int(epochs))
        sizes = sorted(int(size) for size in found["race"]["batch_size"].unique())
        lines = [[f"{epochs} epochs: objective, test error", *(f"batch {size}" for size in sizes)]]
        lines += [[who, *(_cell(rows[rows["batch_size"] == size]) for size in sizes)] for who, rows in found.items()]
        lines.append(["seeds of the race", *(str(sum(found["race"]["batch_size"] == size)) for size in sizes)])
        lines.append(["winners of the race", *(_winners(sources, found["race"], size) for size in sizes)])
        texts.append(_aligned(lines))
    return "\n\n".join(texts)


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "-"
    show: Callable[[str], float] = lambda name: median(rows[name].tolist())  # noqa: E731
    return f"{show('train_nll'):.2e}, {show('test_error'):.2%}"


def _winners(sources: dict[str, Any], rows: pd.DataFrame, size: int) -> str:
    names = rows[rows["batch_size"] == size].sort_values("seed")["run"]
    return ", ".join(sources[name]["winner"].removeprefix("Muon ") for name in names)


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
