"""What the results say, as Markdown: one function a block. `python docs/numbers.py` puts them in their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from hotswap.report.choices import chosen
from hotswap.report.claims import Claim, judge
from hotswap.report.origin import origin_of
from hotswap.report.results import Results, load_results
from hotswap.report.summaries import at_epoch
from hotswap.report.tables import markdown, timing_grid
from hotswap.report.tuning import Measure, Trainings, Tuning, price_of_tuning
from hotswap.studies.paper import BEST_TEST_ERROR, MEDIAN_TEST_ERROR

ROOT = Path(__file__).resolve().parents[2]
ALGORITHMS = ("ducb", "adadelta", "sgd")
EPOCHS = (1, 10, 50, 100, 200, 300, 400, 500)


@cache
def results() -> Results:
    """The results in the repository."""
    return load_results(ROOT / "results" / "paper")


@cache
def claims() -> list[Claim]:
    """The paper's claims, judged."""
    return judge(results())


@cache
def last() -> pd.DataFrame:
    """One row per run, at the end."""
    return at_epoch(results().metrics, results().last_epoch)


def name_of(algorithm: str) -> str:
    """What people call it."""
    return results().looks.label_of(algorithm)


def label(run: pd.Series) -> str:
    """A run's setting in words."""
    return results().label(run)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns hold words, the others numbers."""
    marks = ["---"] * left + ["---:"] * (len(headings) - left)
    lines = [headings, marks, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def batch_sizes() -> list[int]:
    """Those of the study, small to large."""
    return sorted(int(size) for size in last()["batch_size"].unique())


def of(algorithm: str, size: int | None = None) -> pd.DataFrame:
    """The last rows of an algorithm, and of one batch size where it is given."""
    rows = last()[last()["algorithm"] == algorithm]
    return rows if size is None else rows[rows["batch_size"] == size]


def plural(number: int, word: str) -> str:
    """`1 claim`, `2 claims`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# --- the paper's claims -----------------------------------------------------------------------------------------------


def claims_table() -> str:
    """One line a claim, without the rules."""
    rows = [
        (str(c.number), c.claim, c.paper, c.ours, f"**{c.verdict}**" if c.verdict else "none yet") for c in claims()
    ]
    return table(("#", "claim", "paper", "here", "verdict"), rows, left=5)


def rules() -> str:
    """What decides, a line a claim."""
    return "\n".join(f"{c.number}. {c.rule[0].upper()}{c.rule[1:]}." for c in claims())


def verdicts() -> str:
    """How many of each."""
    found = Counter(c.verdict or "without a verdict yet" for c in claims())
    order = ("reproduced", "partly reproduced", "not reproduced", "without a verdict yet")
    return f"Of {len(claims())} claims: " + ", ".join(f"{found[name]} {name}" for name in order if found[name]) + "."


def one_claim(number: int) -> str:
    """One claim as a small table."""
    c = claims()[number - 1]
    rows = (("paper", c.paper), ("here", c.ours), ("rule", c.rule), ("verdict", f"**{c.verdict or 'none yet'}**"))
    return table((f"claim {c.number}", c.claim), rows, left=2)


# --- all runs ---------------------------------------------------------------------------------------------------------


def headline() -> str:
    """What a reader should know first."""
    origin = origin_of(results())
    medians = " / ".join(f"{of(name)['test_error'].median():.2%}" for name in ALGORITHMS)
    printed = " / ".join(f"{MEDIAN_TEST_ERROR[name]:.2%}" for name in ALGORITHMS)
    names = " / ".join(name_of(name) for name in ALGORITHMS)
    best = last().loc[last()["test_error"].idxmin()]
    lines = [
        f"{origin.runs:,} runs of {results().last_epoch} epochs: {origin.minutes:.1f} minutes of training and "
        f"evaluation on one {' and one '.join(origin.devices)} ({', '.join(precisions())}).",
        verdicts(),
        f"Median test error over all runs, {names}: {medians} (paper: {printed}).",
        f"Best single test error: {best['test_error']:.2%}, {label(best)} (paper: {BEST_TEST_ERROR:.2%}, DUCB).",
        f"Lowest training objective at batch sizes {', '.join(map(str, batch_sizes()))}: {lowest()}.",
        *(line for measure in ("test_error", "train_nll") for line in tuning(measure)),
    ]
    return "\n".join(f"- {line}" for line in lines)


def summary() -> str:
    """Three lines for who has no time."""
    origin = origin_of(results())
    lines = [
        f"All {origin.runs:,} runs of the paper's study in {origin.minutes:.1f} minutes on one "
        f"{' and '.join(origin.devices)}. {verdicts()}",
        "Median test error over all runs, "
        + ", ".join(f"{name_of(name)} {of(name)['test_error'].median():.2%}" for name in ALGORITHMS)
        + f". Best single run: {label(last().loc[last()['test_error'].idxmin()])}, {last()['test_error'].min():.2%}.",
        *(line.partition(" By batch size")[0] for line in tuning("test_error")),
    ]
    return "\n".join(f"- {line}" for line in lines)


def lowest() -> str:
    """The best objective of each algorithm, by batch size."""
    parts = []
    for name in ALGORITHMS:
        values = ", ".join(f"{of(name, size)['train_nll'].min():.1e}" for size in batch_sizes())
        parts.append(f"{name_of(name)} {values}")
    return "; ".join(parts)


def tuning(measure: Measure) -> list[str]:
    """How many trainings of SGD, at settings drawn at random, match one run of DUCB; nothing where data are missing."""
    curve = price(measure)
    if curve is None:
        return []
    what = "test error" if measure == "test_error" else "training objective"
    shown = f"{curve.one_run:.2%}" if measure == "test_error" else f"{curve.one_run:.1e}"
    each = ", ".join(f"{curve.caught_up(value) or 'never'} at {size}" for size, value in curve.levels.items())
    k = curve.caught_up(curve.one_run)
    settings = len(curve.expected)
    guided = f", {curve.bayesian.caught_up(curve.one_run)} if a Bayesian search chooses them" if curve.bayesian else ""
    answer = (
        f"{k} of SGD's {settings} settings, drawn at random, must be trained for their best to match it on average"
        f"{guided}"
        if k
        else f"not even the best of all {settings} SGD settings matches it"
    )
    subject = f"{what[0].upper()}{what[1:]} of one DUCB run, the median over batch sizes: {shown}"
    return [f"{subject}; {answer}. By batch size: {each}."]


@cache
def price(measure: Measure) -> Tuning | None:
    """The price of tuning by one measure."""
    return price_of_tuning(results().metrics, measure, results().looks, results().searches.get(measure))


def trainings(found: Trainings | None) -> str:
    """`37 (13 … 157)`: in half of the searches, and in eight of ten."""
    return "never" if found is None else f"{found.median} ({found.low} … {found.high})"


def price_table() -> str:
    """How many trainings each search takes to match one run of DUCB, by measure and batch size."""
    rows = []
    for measure, what in (("test_error", "test error"), ("train_nll", "training objective")):
        curve = price(measure)  # type: ignore[arg-type]
        if curve is None or curve.bayesian is None:
            continue
        for size, level in curve.levels.items():
            shown = f"{level:.2%}" if measure == "test_error" else f"{level:.1e}"
            until = (curve.until(float(level)), curve.bayesian.until(float(level)))
            rows.append((what, str(size), shown, *map(trainings, until)))
    return table(("measure", "batch size of DUCB", "DUCB", "random search", "Bayesian search"), rows)


def searches() -> str:
    """How many Bayesian searches there are."""
    counts = sorted({len(orders) for orders in results().searches.values()})
    return " and ".join(map(str, counts)) or "no"


def medians() -> str:
    """Final objective and test error: median, least and most over runs, by algorithm and batch size."""
    rows = []
    for name in ALGORITHMS:
        for size in batch_sizes():
            part = of(name, size)
            loss, error = part["train_nll"], part["test_error"]
            rows.append(
                (
                    name_of(name),
                    str(size),
                    f"{len(part)}",
                    f"{loss.median():.1e}",
                    f"{loss.min():.1e} … {loss.max():.1e}",
                    f"{error.median():.2%}",
                    f"{error.min():.2%} … {error.max():.2%}",
                )
            )
    headings = ("algorithm", "batch", "runs", "objective", "least … most", "test error", "least … most")
    return table(headings, rows)


def trials() -> str:
    """DUCB's trials per step by batch size and epoch: the median over seeds of an epoch's mean."""
    return by_epoch("trials", "{:.2f}".format)


def rates() -> str:
    """DUCB's mean rate by batch size and epoch; a step in which nothing moved counts as 0."""
    return by_epoch("mean_lr", "{:.3g}".format)


def by_epoch(column: str, text: Callable[[float], str]) -> str:
    """A measure of DUCB's runs, epochs across."""
    ducb = results().metrics[results().metrics["algorithm"] == "ducb"]
    values = ducb.groupby(["batch_size", "epoch"])[column].median()
    epochs = [epoch for epoch in EPOCHS if epoch in set(ducb["epoch"])]
    rows = [(str(size), *(text(values[size, epoch]) for epoch in epochs)) for size in batch_sizes()]
    return table(("batch size", *(f"epoch {epoch}" for epoch in epochs)), rows)


# --- what did not reproduce -------------------------------------------------------------------------------------------


def top_rate() -> str:
    """At the end: how often the largest rate was taken, and how often nothing was."""
    rows = []
    for size, shares in chosen(results()).items():
        end = shares.loc[results().last_epoch]
        rows.append((str(size), f"{end.iloc[0]:.1%}", f"{max(0.0, 1 - end.sum()):.1%}", f"{peak(size)}"))
    top = f"{results().rates[0]:g}"
    return table(
        (
            "batch size",
            f"steps at rate {top}, the largest",
            "steps that moved nothing",
            "mean rate is highest in epoch",
        ),
        rows,
    )


def peak(size: int) -> int:
    """The recorded epoch in which DUCB's mean rate, the median over seeds, is highest."""
    ducb = results().metrics[(results().metrics["algorithm"] == "ducb") & (results().metrics["batch_size"] == size)]
    return int(ducb.groupby("epoch")["mean_lr"].median().idxmax())


def step_lengths() -> str:
    """Rate times gradient norm, early and late."""
    ducb = results().metrics[results().metrics["algorithm"] == "ducb"]
    product = (ducb["mean_lr"] * ducb["grad_norm"]).groupby([ducb["batch_size"], ducb["epoch"]]).median()
    norm = ducb.groupby(["batch_size", "epoch"])["grad_norm"].median()
    end = results().last_epoch
    rows = [
        (
            str(size),
            f"{norm[size, 10]:.1e}",
            f"{norm[size, end]:.1e}",
            f"{product[size, 10]:.1e}",
            f"{product[size, end]:.1e}",
        )
        for size in batch_sizes()
    ]
    headings = (
        "batch size",
        "norm, epoch 10",
        f"norm, epoch {end}",
        "rate × norm, epoch 10",
        f"rate × norm, epoch {end}",
    )
    return table(headings, rows)


def large_batch() -> str:
    """What is known of DUCB at the largest batch size."""
    metrics, end, size = results().metrics, results().last_epoch, batch_sizes()[-1]
    ours, others = of("ducb", size), last()[last()["algorithm"] != "ducb"]
    same = others[others["batch_size"] == size]
    better = same[same["train_nll"] < ours["train_nll"].min()]
    ducb = metrics[(metrics["algorithm"] == "ducb")]
    median = ducb.groupby(["batch_size", "epoch"])[["train_nll", "steps"]].median()
    before = max(epoch for epoch in EPOCHS if epoch < end)
    steps = median.loc[(size, end), "steps"]
    small = batch_sizes()[0]
    near = (median.loc[small]["steps"] - steps).abs().idxmin()
    factor = median.loc[(size, before), "train_nll"] / median.loc[(size, end), "train_nll"]
    lines = [
        f"{int((others['train_nll'] < ours['train_nll'].min()).sum())} of the other {len(others):,} runs end below the "
        f"best DUCB run at batch {size}; {len(better)} of these have batch size {size} themselves.",
        f"Those {len(better)}: {settings_of(better)}.",
        f"DUCB at batch {size} takes {steps:,.0f} steps in {end} epochs, against "
        f"{median.loc[(small, end), 'steps']:,.0f} at batch {small}.",
        f"After about as many steps ({median.loc[(small, near), 'steps']:,.0f}, epoch {near}) DUCB at batch {small} "
        f"has an objective of {median.loc[(small, near), 'train_nll']:.1e}; at batch {size} it is "
        f"{median.loc[(size, end), 'train_nll']:.1e}.",
        f"It is still falling: between epochs {before} and {end} by a factor of {factor:.1f}.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def settings_of(runs: pd.DataFrame) -> str:
    """The settings of some runs in words, each once, with the number of seeds."""
    counted = Counter(label(row) for _, row in runs.iterrows())
    return "; ".join(f"{name} ({plural(seeds, 'seed')})" for name, seeds in sorted(counted.items()))


def best_errors() -> str:
    """The best runs by test error, and how far one test set can tell them apart."""
    best = float(of("ducb")["test_error"].min())
    ahead = last()[last()["test_error"] < best].sort_values("test_error")
    images = 10_000
    winner = ahead.iloc[0] if len(ahead) else of("ducb").sort_values("test_error").iloc[0]
    error = float(winner["test_error"])
    spread = (error * (1 - error) / images) ** 0.5
    same = of(str(winner["algorithm"]), int(winner["batch_size"])).sort_values("seed")
    lines = [
        f"The best DUCB run has {best:.2%}. {plural(len(ahead), 'run')} of the other {len(last()) - len(of('ducb')):,} "
        f"{'is' if len(ahead) == 1 else 'are'} ahead: "
        + "; ".join(f"{row['test_error']:.2%}, {label(row)}, seed {row['seed']}" for _, row in ahead.iterrows())
        + ".",
        f"The winner's setting has {' / '.join(f'{value:.2%}' for value in same['test_error'])} over its "
        f"{plural(len(same), 'seed')}.",
        f"An error of {error:.2%} on {images:,} test images has a standard error of {100 * spread:.2f} points if "
        "images are drawn at random.",
        f"Medians at batch {batch_sizes()[0]}: "
        + ", ".join(f"{name_of(name)} {of(name, batch_sizes()[0])['test_error'].median():.2%}" for name in ALGORITHMS)
        + ".",
    ]
    return "\n".join(f"- {line}" for line in lines)


def by_the_clock() -> str:
    """The single runs at some moments: who is ahead."""
    runs = [rows.sort_values("epoch") for _, rows in results().curves.groupby("run")]
    if not runs:
        return "There are no single runs in the results yet."
    rows = []
    for moment in (1.0, 2.0, 5.0, 10.0, 20.0):
        cells = [f"{moment:g} s"]
        for measure, text in (("test_error", "{:.2%}"), ("train_nll", "{:.1e}")):
            now = sorted(
                (float(np.interp(moment, run["seconds"], run[measure])), place)
                for place, run in enumerate(runs)
                if run["seconds"].iloc[-1] >= moment
            )
            ducb = next(place for place, (_, of) in enumerate(now) if _is_small_ducb(runs[of]))
            cells += [
                f"{text.format(now[0][0])}, {label(runs[now[0][1]].iloc[-1])}",
                f"{text.format(now[ducb][0])}, place {ducb + 1} of {len(now)}",
            ]
        rows.append(cells)
    size = batch_sizes()[0]
    headings = ["after", "best test error", f"DUCB, batch {size}", "lowest objective", f"DUCB, batch {size}"]
    return table(headings, rows, left=5)


def _is_small_ducb(run: pd.DataFrame) -> bool:
    return run["algorithm"].iloc[0] == "ducb" and run["batch_size"].iloc[0] == batch_sizes()[0]


# --- tables, durations, provenance ------------------------------------------------------------------------------------


def tables() -> str:
    """Tables 1 and 2, or a sentence."""
    timing = results().timing
    if timing.empty:
        return "There are no timings of single runs in the results yet, so Tables 1 and 2 cannot be shown."
    grids = "\n".join(markdown(timing_grid(timing, unit)) for unit in ("milliseconds", "seconds")).strip()
    singles = [entry for name, entries in results().units.items() if name.startswith("singles/") for entry in entries]
    dates = sorted({str(entry["date"])[:10] for entry in singles if "date" in entry})
    made = [*dict.fromkeys(timing["device"]), *(p.upper() for p in dict.fromkeys(timing["precision"]))]
    made += [
        *(f"torch {version}" for version in dict.fromkeys(timing["torch"])),
        *dict.fromkeys((*dates[:1], *dates[-1:])),
    ]
    return f"{grids}\n\n*Single runs, one at a time, `hotswap study timing`: {', '.join(made)}.*"


def finishes() -> dict[str, list[dict[str, object]]]:
    """What finished each unit, single runs apart."""
    return {name: entries for name, entries in results().units.items() if not name.startswith("singles/")}


def precisions() -> list[str]:
    """As a reader knows them."""
    return [name.upper() for name in origin_of(results()).precisions]


def durations() -> str:
    """How long the runs of each algorithm and batch size took together."""
    seconds: Counter[tuple[str, int]] = Counter()
    homes = last().set_index("run")[["algorithm", "batch_size"]]
    for entries in finishes().values():
        for entry in entries:
            first = homes.loc[entry["runs"][0]]  # type: ignore[index]
            seconds[first["algorithm"], int(first["batch_size"])] += float(entry["seconds"])  # type: ignore[arg-type]
    rows = [
        (
            name_of(name),
            f"{len(of(name)):,}",
            *(f"{seconds[name, size]:.0f} s" for size in batch_sizes()),
            f"{sum(seconds[name, size] for size in batch_sizes()) / 60:.1f} min",
        )
        for name in reversed(ALGORITHMS)
    ]
    return table(("algorithm", "runs", *(f"batch {size}" for size in batch_sizes()), "together"), rows)


def provenance() -> str:
    """Versions, device, precision, date, commands."""
    origin = origin_of(results())
    pythons = sorted({str(entry["python"]) for entries in finishes().values() for entry in entries})
    own = sorted({str(entry["hotswap"]) for entries in finishes().values() for entry in entries})
    rows = [
        ("device", ", ".join(origin.devices)),
        ("precision of matrix products", ", ".join(precisions())),
        ("versions", f"hotswap {', '.join(own)}; {', '.join(origin.versions)}; Python {', '.join(pythons)}"),
        ("date", " to ".join(dict.fromkeys((origin.dates[0], origin.dates[-1])))),
        (
            "time",
            f"{origin.minutes:.1f} minutes for {origin.runs:,} runs in {origin.units} units, evaluations included",
        ),
        ("commands", "<br>".join(f"`{command}`" for command in origin.commands)),
    ]
    return table(("what", "of these numbers"), rows, left=2)


def source() -> str:
    """One line for below a table."""
    return f"*Source: `results/paper`. {origin_of(results()).sentence()}*"


BLOCKS: dict[str, Callable[[], str]] = {
    "claims": claims_table,
    "rules": rules,
    "verdicts": verdicts,
    **{f"claim {number}": partial(one_claim, number) for number in range(1, 9)},
    "headline": headline,
    "summary": summary,
    "price of tuning": price_table,
    "searches": searches,
    "medians": medians,
    "trials": trials,
    "rates": rates,
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
    "device": lambda: " and ".join(origin_of(results()).devices),
}
