"""The paper's study, as Markdown: one function a block. `python docs/numbers.py` puts them in their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hotswap.report.claims import Claim, claims_answer, judge
from hotswap.report.figures import draw_figure_1, draw_figure_2, draw_tuning
from hotswap.report.origin import origin_of
from hotswap.report.results import Results, load_results
from hotswap.report.summaries import at_epoch, chosen
from hotswap.report.tables import Grid, markdown
from hotswap.report.tuning import Measure, Trainings, Tuning
from hotswap.report.write import tables_of, tuning_of
from hotswap.studies.paper import BEST_TEST_ERROR, MEDIAN_TEST_ERROR

ROOT = Path(__file__).resolve().parents[2]
ALGORITHMS = ("ducb", "adadelta", "sgd")
EPOCHS = (1, 10, 50, 100, 200, 300, 400, 500)
FORMS: dict[Measure, Callable[[float], str]] = {"test_error": "{:.2%}".format, "train_nll": "{:.1e}".format}
NAMES: dict[Measure, str] = {"test_error": "test error", "train_nll": "training objective"}


@cache
def results(name: str = "paper") -> Results:
    """The results of a study in the repository, by their place in `results`."""
    return load_results(ROOT / "results" / name)


@cache
def claims() -> list[Claim]:
    """The paper's claims, judged."""
    return judge(results())


@cache
def last() -> pd.DataFrame:
    """One row per run, at the end."""
    return at_epoch(results().metrics, results().last_epoch)


@cache
def ducb() -> pd.DataFrame:
    """DUCB's rows, with the length of its steps in weights."""
    rows = results().metrics[results().metrics["algorithm"] == "ducb"]
    return rows.assign(length=rows["mean_lr"] * rows["grad_norm"])


def of_ducb(column: str) -> pd.Series:
    """The median of a measure over seeds, by batch size and epoch."""
    return ducb().groupby(["batch_size", "epoch"])[column].median()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, with links and HTML as they are; the first `left` columns hold words, the others numbers."""
    grid = Grid("", tuple(headings), tuple(map(tuple, rows)), left)
    return markdown(grid, clean=lambda cell: cell.replace("|", "\\|")).strip()


def batch_sizes() -> list[int]:
    """Those of the study, small to large."""
    return sorted(int(size) for size in last()["batch_size"].unique())


def of(algorithm: str, size: int | None = None) -> pd.DataFrame:
    """The last rows of an algorithm, and of one batch size where it is given."""
    rows = last()[last()["algorithm"] == algorithm]
    return rows if size is None else rows[rows["batch_size"] == size]


def together(texts: Iterable[str]) -> str:
    """`1 / 2 / 3`."""
    return " / ".join(texts)


# --- claims and the headline ------------------------------------------------------------------------------------------


def claims_table() -> str:
    """One line a claim, without the rules."""
    rows = [(str(c.number), c.claim, c.paper, c.ours, f"**{c.verdict or 'none yet'}**") for c in claims()]
    return table(("#", "claim", "paper", "here", "verdict"), rows, left=5)


def claims_in_short() -> str:
    """One line a claim, without the numbers."""
    return table(("claim", "here"), [(c.claim, c.verdict or "none yet") for c in claims()], left=2)


def rules() -> str:
    """The rule of each claim, a line each."""
    return "\n".join(f"{c.number}. {c.rule[0].upper()}{c.rule[1:]}." for c in claims())


def verdicts() -> str:
    """How many verdicts of each kind there are."""
    return claims_answer(claims()).sentence()


def one_claim(number: int) -> str:
    """One claim as a small table."""
    c = claims()[number - 1]
    rows = (("paper", c.paper), ("here", c.ours), ("rule", c.rule), ("verdict", f"**{c.verdict or 'none yet'}**"))
    return table((f"claim {c.number}", c.claim), rows, left=2)


def headline() -> str:
    """The first things to know."""
    origin = origin_of(results())
    names = together(results().looks.label_of(name) for name in ALGORITHMS)
    best = last().loc[last()["test_error"].idxmin()]
    made = f"{origin.runs:,} in {origin.minutes:.1f} minutes on one {device()}"
    rows = [
        (f"runs of {results().last_epoch} epochs", made, ""),
        ("claims", verdicts().removeprefix(f"Of {len(claims())} claims: ").rstrip("."), ""),
        (
            f"median test error over all runs, {names}",
            together(f"{of(name)['test_error'].median():.2%}" for name in ALGORITHMS),
            together(f"{MEDIAN_TEST_ERROR[name]:.2%}" for name in ALGORITHMS),
        ),
        (
            "best single test error",
            f"{best['test_error']:.2%}, {results().label(best)}",
            f"{BEST_TEST_ERROR:.2%}, {results().looks.label_of('ducb')}",
        ),
    ]
    for size in batch_sizes():
        values = together(f"{of(name, size)['train_nll'].min():.1e}" for name in ALGORITHMS)
        rows.append((f"lowest training objective at batch size {size}, {names}", values, ""))
    for curve in prices():
        goal = f"{NAMES[curve.measure]} of one DUCB run ({FORMS[curve.measure](curve.one_run)})"
        found = [curve.caught_up(curve.one_run)]
        found += [curve.bayesian.caught_up(curve.one_run)] if curve.bayesian else []
        trained = together(str(k) if k else "never" for k in found)
        rows.append((f"trainings of SGD that match the {goal}, random / Bayesian search", trained, ""))
    return table(("", "here", "paper"), rows, left=3)


# --- all runs ---------------------------------------------------------------------------------------------------------


@cache
def prices() -> list[Tuning]:
    """The price of tuning by test error and by objective."""
    return tuning_of(results())[::-1]


def trainings(found: Trainings | None) -> str:
    """`37 (13 … 157)`: in half of the searches, and in eight of ten."""
    return "never" if found is None else f"{found.median} ({found.low} … {found.high})"


def price_table() -> str:
    """How many trainings each search takes to match one run of DUCB, by measure and batch size."""
    rows = []
    for curve in prices():
        searches = [one for one in (curve, curve.bayesian) if one is not None]
        for size, level in curve.levels.items():
            found = (trainings(one.until(float(level))) for one in searches)
            rows.append((NAMES[curve.measure], str(size), FORMS[curve.measure](level), *found))
    return table(("measure", "batch size of DUCB", "DUCB", "random search", "Bayesian search"), rows)


def medians() -> str:
    """Final objective and test error: median, least and most over runs, by algorithm and batch size."""
    rows = []
    for name in ALGORITHMS:
        for size in batch_sizes():
            cells = []
            for measure in ("train_nll", "test_error"):
                values, text = of(name, size)[measure], FORMS[measure]  # type: ignore[index]
                cells += [text(values.median()), f"{text(values.min())} … {text(values.max())}"]
            rows.append((results().looks.label_of(name), str(size), f"{len(of(name, size))}", *cells))
    headings = ("algorithm", "batch", "runs", "objective", "least … most", "test error", "least … most")
    return table(headings, rows)


def by_epoch(column: str, text: Callable[[float], str]) -> str:
    """A measure of DUCB's runs, epochs across: the median over seeds."""
    values = of_ducb(column)
    epochs = [epoch for epoch in EPOCHS if epoch in set(ducb()["epoch"])]
    rows = [(str(size), *(text(values[size, epoch]) for epoch in epochs)) for size in batch_sizes()]
    return table(("batch size", *(f"epoch {epoch}" for epoch in epochs)), rows)


# --- what did not reproduce -------------------------------------------------------------------------------------------


def top_rate() -> str:
    """At the end: how often the largest rate was taken, and how often nothing was."""
    rows = []
    for size, shares in chosen(results()).items():
        end, peak = shares.loc[results().last_epoch], of_ducb("mean_lr")[size].idxmax()
        rows.append((str(size), f"{end.iloc[0]:.1%}", f"{max(0.0, 1 - end.sum()):.1%}", f"{peak}"))
    top = f"steps at rate {results().rates[0]:g}, the largest"
    return table(("batch size", top, "steps that moved nothing", "mean rate is highest in epoch"), rows)


def step_lengths() -> str:
    """Gradient norm, and rate times gradient norm, early and late."""
    places = [(column, epoch) for column in ("grad_norm", "length") for epoch in (10, results().last_epoch)]
    rows = [(str(size), *(f"{of_ducb(name)[size, epoch]:.1e}" for name, epoch in places)) for size in batch_sizes()]
    names = {"grad_norm": "norm", "length": "rate × norm"}
    return table(("batch size", *(f"{names[column]}, epoch {epoch}" for column, epoch in places)), rows)


def large_batch() -> str:
    """DUCB at the largest batch size beside the smallest, and the runs that end lower."""
    end, small, size = results().last_epoch, batch_sizes()[0], batch_sizes()[-1]
    others, steps, loss = last()[last()["algorithm"] != "ducb"], of_ducb("steps"), of_ducb("train_nll")
    better = others[others["train_nll"] < of("ducb", size)["train_nll"].min()]
    near = (steps[small] - steps[size, end]).abs().idxmin()
    before = max(epoch for epoch in EPOCHS if epoch < end)
    same = Counter(results().label(row) for _, row in better[better["batch_size"] == size].iterrows())
    rows = [(str(at), str(e), f"{steps[at, e]:,.0f}", f"{loss[at, e]:.1e}") for at, e in ((size, before), (size, end))]
    rows += [(str(small), str(e), f"{steps[small, e]:,.0f}", f"{loss[small, e]:.1e}") for e in (near, end)]
    settings = "; ".join(f"{name} (seeds: {seeds})" for name, seeds in sorted(same.items()))
    told = f"Lower than the best DUCB run at batch {size}: {len(better)} of the other {len(others):,} runs."
    shown = table(("batch size of DUCB", "epoch", "steps", "median objective"), rows, left=0)
    return f"{told} Those of the same batch size: {settings}.\n\n{shown}"


def best_errors() -> str:
    """The runs that are ahead of the best run of DUCB by test error, and how far one test set can tell them apart."""
    best = float(of("ducb")["test_error"].min())
    rows = [(f"best DUCB run, of {len(of('ducb'))}", f"{best:.2%}")]
    for _, row in last()[last()["test_error"] < best].sort_values("test_error").iterrows():
        name, error = results().label(row), row["test_error"]
        same = [one for _, one in last().sort_values("seed").iterrows() if results().label(one) == name]
        rows.append((f"ahead of it: {name}, seed {row['seed']}", f"{error:.2%}"))
        rows.append(("its setting, by seed", together(f"{one['test_error']:.2%}" for one in same)))
        spread = f"{(error * (1 - error)) ** 0.5:.2f} points"
        rows.append(("standard error on 10,000 test images drawn at random", spread))
    size = batch_sizes()[0]
    for name in ALGORITHMS:
        title = f"median at batch {size}, {results().looks.label_of(name)}"
        rows.append((title, f"{of(name, size)['test_error'].median():.2%}"))
    return table(("", "test error"), rows)


def by_the_clock() -> str:
    """The single runs at some moments: who is ahead."""
    size, rows = batch_sizes()[0], []
    runs = [rows.sort_values("epoch") for _, rows in results().curves.groupby("run")]
    for moment in (1.0, 2.0, 5.0, 10.0, 20.0):
        cells, there = [f"{moment:g} s"], [run for run in runs if run["seconds"].iloc[-1] >= moment]
        for measure, text in FORMS.items():
            now = sorted((np.interp(moment, run["seconds"], run[measure]), at) for at, run in enumerate(there))
            ends = [there[at].iloc[-1] for _, at in now]
            place = next(i for i, end in enumerate(ends) if (end["algorithm"], end["batch_size"]) == ("ducb", size))
            cells.append(f"{text(now[0][0])}, {results().label(ends[0])}")
            cells.append(f"{text(now[place][0])}, place {place + 1} of {len(now)}")
        rows.append(cells)
    headings = ["after", "best test error", f"DUCB, batch {size}", "lowest objective", f"DUCB, batch {size}"]
    return table(headings, rows, left=5)


# --- tables, durations, provenance ------------------------------------------------------------------------------------


def tables() -> str:
    """Tables 1 and 2."""
    timing, grids = results().timing, "\n".join(map(markdown, tables_of(results()))).strip()
    singles = [entry for name, entries in results().units.items() if name.startswith("singles/") for entry in entries]
    dates = sorted({str(entry["date"])[:10] for entry in singles if "date" in entry})
    made = [*timing["device"].unique(), *(name.upper() for name in timing["precision"].unique())]
    made += [*(f"torch {name}" for name in timing["torch"].unique()), *dict.fromkeys((*dates[:1], *dates[-1:]))]
    return f"{grids}\n\n*Single runs, one at a time, `hotswap study timing`: {', '.join(made)}.*"


def seconds_by_unit() -> Counter[tuple[str, int]]:
    """How long the runs of each algorithm and batch size took together."""
    seconds: Counter[tuple[str, int]] = Counter()
    homes = last().set_index("run")[["algorithm", "batch_size"]]
    for entry in (entry for name, found in results().units.items() if "/" not in name for entry in found):
        first = homes.loc[entry["runs"][0]]
        seconds[first["algorithm"], int(first["batch_size"])] += entry["seconds"]
    return seconds


def durations() -> str:
    """The same as a table."""
    rows = []
    for name in reversed(ALGORITHMS):
        each = [seconds_by_unit()[name, size] for size in batch_sizes()]
        label = results().looks.label_of(name)
        rows.append((label, f"{len(of(name)):,}", *(f"{one:.0f} s" for one in each), f"{sum(each) / 60:.1f} min"))
    return table(("algorithm", "runs", *(f"batch {size}" for size in batch_sizes()), "together"), rows)


def provenance() -> str:
    """Versions, device, precision, date, commands."""
    origin = origin_of(results())
    time = f"{origin.minutes:.1f} minutes for {origin.runs:,} runs in {origin.units} units, evaluations included"
    rows = [
        ("device", ", ".join(origin.devices)),
        ("precision of matrix products", ", ".join(origin.precisions).upper()),
        ("versions", ", ".join(origin.versions)),
        ("date", " to ".join(dict.fromkeys((origin.dates[0], origin.dates[-1])))),
        ("time", time),
        ("commands", "<br>".join(f"`{command}`" for command in origin.commands)),
    ]
    return table(("what", "of these numbers"), rows, left=2)


def source(name: str = "paper") -> str:
    """One line for below a table."""
    return f"*Source: `results/{name}`. {origin_of(results(name)).sentence()}*"


def device() -> str:
    """The device that trained the study."""
    return " and ".join(origin_of(results()).devices)


def figures() -> dict[str, Figure | None]:
    """The paper's figures, by the names of their files, as the report draws them."""
    found = results()
    return {
        "figure-1.png": draw_figure_1(found.metrics),
        "figure-2.png": draw_figure_2(found.curves),
        "tuning.png": draw_tuning(tuning_of(found), found.looks),
    }


BLOCKS: dict[str, Callable[[], str]] = {
    "claims": claims_table,
    "claims in short": claims_in_short,
    "rules": rules,
    "verdicts": verdicts,
    **{f"claim {number}": partial(one_claim, number) for number in range(1, 9)},
    "headline": headline,
    "price of tuning": price_table,
    "searches": lambda: " and ".join(dict.fromkeys(str(len(orders)) for orders in results().searches.values())),
    "medians": medians,
    "trials": partial(by_epoch, "trials", "{:.2f}".format),
    "rates": partial(by_epoch, "mean_lr", "{:.3g}".format),
    "top rate": top_rate,
    "step lengths": step_lengths,
    "large batch": large_batch,
    "best errors": best_errors,
    "by the clock": by_the_clock,
    "tables": tables,
    "durations": durations,
    "provenance": provenance,
    "source": source,
    "runs": lambda: f"{origin_of(results()).runs:,}",
    "minutes": lambda: f"{origin_of(results()).minutes:.1f}",
    "device": device,
}
