"""The paper's eight claims, each judged by code: what it printed, what we measured, the rule, the verdict.

Each entry of `RULES` has a function that decides, and a sentence for the numbers that the function returns. What is
compared with what follows the paper's own words; where a claim holds in part, the verdict says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from hotswap.report.answer import Answer, Case, Group, Sign
from hotswap.report.looks import families_of
from hotswap.report.results import Results
from hotswap.report.summaries import at_epoch, settings, window_mean
from hotswap.report.tables import Grid
from hotswap.studies.paper import (
    ADADELTA_TOP_SHARE,
    BEST_TEST_ERROR,
    COST_RATIO,
    DUCB_LEADS_AFTER_SECONDS,
    MEDIAN_TEST_ERROR,
    TABLE_1,
)
from hotswap.studies.rows import best_sgd

__all__ = ["Claim", "Verdict", "claims_answer", "claims_grid", "judge", "worth_showing"]

Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]
YES: Verdict = "reproduced"
PARTLY: Verdict = "partly reproduced"
NO: Verdict = "not reproduced"

LEAST_COST_RATIO = 1.5  # the paper says 1.6, and its Table 1 has 1.53
GROWTH = 1.05  # of a minibatch's cost, from the first epoch timed to the last; less may be the clock's
STEPS_AT_1000_S = 1000 * round(DUCB_LEADS_AFTER_SECONDS / TABLE_1[64].ducb_epoch_100)
"""The number of minibatches of batch size 64 that DUCB had done by then, to the nearest thousand: 33,000."""


@dataclass(frozen=True)
class Claim:
    """One line of the claims table."""

    number: int
    claim: str
    paper: str
    ours: str
    rule: str
    verdict: Verdict | None
    """None where data are missing; `ours` says which."""


class Lack(StrEnum):
    """The data that a verdict needs and that are not there."""

    RUNS = "no verdict: no runs of {}"
    ENDS = "no verdict: {}"
    OBJECTIVE = "no verdict: no other run has a finite training objective"
    ERRORS = "no verdict: some runs have no test error"
    DUCB_ERROR = "no verdict: no run of DUCB has a test error"
    SINGLES = "no verdict: no single runs against the clock"
    LONG = "no verdict: no single run of DUCB at batch 64 that is long enough, beside others"
    EPOCHS = "no verdict: too few epochs recorded"
    TIMINGS = "no verdict: no timings of single runs"
    CELLS = "no verdict: it takes timings of DUCB and SGD at two batch sizes and two epochs or more"


Found = tuple[Verdict, dict[str, Any]] | Lack
"""A verdict with the numbers of its sentence."""


class Rule(NamedTuple):
    """A claim of the paper, and how it is decided."""

    claim: str
    paper: str
    rule: str
    ours: str
    """The sentence for the numbers that `decide` returns."""
    decide: Callable[[Results], Found]
    ends: tuple[str, ...] = ()
    """The algorithms whose runs must have ended."""


def judge(results: Results) -> list[Claim]:
    """All eight, in order."""
    claims = []
    for number, rule in enumerate(RULES, start=1):
        lack = _lack(results, rule.ends)
        found = rule.decide(results) if lack is None else lack
        verdict, ours = (None, found) if isinstance(found, str) else (found[0], rule.ours.format(**found[1]))
        claims.append(Claim(number, rule.claim, rule.paper, str(ours), rule.rule, verdict))
    return claims


SIGNS: dict[Verdict | None, Sign] = {YES: "good", PARTLY: "part", NO: "bad", None: "unknown"}


def claims_answer(claims: Sequence[Claim]) -> Answer:
    """How many claims hold, and which."""
    outcomes = [verdict for verdict in SIGNS if verdict or any(claim.verdict is None for claim in claims)]
    groups = tuple(
        Group(
            verdict or "without a verdict yet",
            SIGNS[verdict],
            tuple(Case(claim.claim, claim.ours) for claim in claims if claim.verdict == verdict),
        )
        for verdict in outcomes
    )
    return Answer("Which of the paper's claims hold?", "claims", "claim", groups)


def claims_grid(claims: Sequence[Claim]) -> Grid:
    """`claims.md`: a line for each claim."""
    rows = [(str(c.number), c.claim, c.paper, c.ours, c.rule, f"**{c.verdict}**" if c.verdict else "—") for c in claims]
    return Grid("", ("#", "claim", "paper", "here", "what decides", "verdict"), tuple(rows), left=6)


def worth_showing(results: Results) -> bool:
    """Whether a study has something to say about the claims: not if it is one of variants, without DUCB itself."""
    variants = any(family.algorithm == "hotswap" for family in families_of(results.specs))
    return not variants or "ducb" in set(results.metrics["algorithm"])


def _lack(results: Results, algorithms: Sequence[str]) -> str | None:
    """The reason why nothing can be said of how runs of these algorithms end; None if there is none."""
    there = set(results.metrics["algorithm"])
    absent = [results.looks.label_of(name) for name in algorithms if name not in there]
    if absent:
        return Lack.RUNS.format(" and ".join(absent))
    return Lack.ENDS.format(results.unfinished) if algorithms and results.unfinished else None


def _share(good: int, of: int) -> Verdict:
    """The verdict where `good` of so many comparisons hold: all of them, some or none."""
    return YES if good == of else PARTLY if good else NO


def _each(values: pd.Series, text: Callable[[Any], str]) -> str:
    """`0.1 at 64, 0.2 at 128`."""
    return ", ".join(f"{text(value)} at {size}" for size, value in values.items())


def _last(results: Results, algorithm: str | None = None) -> pd.DataFrame:
    rows = at_epoch(results.metrics, results.last_epoch)
    return rows if algorithm is None else rows[rows["algorithm"] == algorithm]


def _lowest_objective(results: Results) -> Found:
    last = _last(results)
    ours, rest = last[last["algorithm"] == "ducb"], last[last["algorithm"] != "ducb"]
    best = float(rest["train_nll"].min())
    if not np.isfinite(best):
        return Lack.OBJECTIVE
    below = ours["train_nll"] < best
    counts = below.groupby(ours["batch_size"]).agg(lambda part: f"{part.sum()} of {len(part)}")
    numbers = {"below": below.sum(), "of": len(ours), "best": best, "rest": len(rest), "parts": _each(counts, str)}
    return _share(below.sum(), len(ours)), numbers


def _median_errors(results: Results) -> Found:
    medians = _last(results).groupby("algorithm")["test_error"].median()[list(MEDIAN_TEST_ERROR)]
    if medians.isna().any():
        return Lack.ERRORS
    (ducb, adadelta, sgd), theirs = medians, MEDIAN_TEST_ERROR
    near, far = theirs["adadelta"] - theirs["ducb"], theirs["sgd"] - theirs["adadelta"]
    wide = adadelta - ducb >= near / 2 and sgd - adadelta >= far / 2
    verdict = NO if ducb >= min(adadelta, sgd) else YES if wide else PARTLY
    return verdict, {"ducb": ducb, "adadelta": adadelta, "sgd": sgd}


def _best_error(results: Results) -> Found:
    last = _last(results).dropna(subset="test_error")
    ducb = last.loc[last["algorithm"] == "ducb", "test_error"].min()
    if np.isnan(ducb):
        return Lack.DUCB_ERROR
    winners = last[last["test_error"] == last["test_error"].min()]
    who, first = sorted(set(winners["algorithm"])), winners.iloc[0]
    verdict = NO if "ducb" not in who else YES if who == ["ducb"] else PARTLY
    names = " and ".join(results.looks.label_of(name) for name in who)
    return verdict, {"first": first, "names": names, "ducb": ducb}


def _adadelta_ranks(results: Results) -> Found:
    table = settings(results.metrics, results.last_epoch)
    sgd = table.loc[table["algorithm"] == "sgd", "train_nll"].to_numpy()
    ours = table[table["algorithm"] == "adadelta"].set_index("batch_size")["train_nll"].sort_index()
    better = ours.map(lambda value: float((sgd < value).mean()))
    inside = int((better <= ADADELTA_TOP_SHARE).sum())
    return _share(inside, len(better)), {
        "inside": inside, "of": len(better), "better": _each(better, "{:.0%}".format),
    }  # fmt: skip


def _best_by_the_clock(results: Results) -> Found:
    if results.curves.empty:
        return Lack.SINGLES
    curves = results.curves.dropna(subset=["seconds", "test_error"]).sort_values("epoch")
    ours = curves[(curves["algorithm"] == "ducb") & (curves["batch_size"] == 64)]
    others = curves[~curves["run"].isin(ours["run"])]
    if ours.empty or others.empty or ours["steps"].max() < STEPS_AT_1000_S:
        return Lack.LONG
    when = float(np.interp(STEPS_AT_1000_S, ours["steps"], ours["seconds"]))
    mine = float(np.interp(when, ours["seconds"], ours["test_error"]))
    errors = {
        results.label(rows.iloc[0]): float(np.interp(when, rows["seconds"], rows["test_error"]))
        for _, rows in others.groupby("run")
    }
    better, best = sum(error < mine for error in errors.values()), min(errors, key=errors.__getitem__)
    verdict = YES if better == 0 else PARTLY if better <= len(errors) // 4 else NO
    numbers = {"mine": mine, "when": when, "steps": STEPS_AT_1000_S, "better": better, "of": len(errors)}
    return verdict, {**numbers, "best": best, "error": errors[best]}


def _falling_rate(results: Results) -> Found:
    metrics = results.metrics[results.metrics["algorithm"] == "ducb"]
    tenth = results.last_epoch // 10  # 50 epochs of 500
    early = window_mean(metrics, "mean_lr", tenth, 2 * tenth, ["batch_size"])
    late = window_mean(metrics, "mean_lr", results.last_epoch - tenth, results.last_epoch, ["batch_size"])
    if early.empty:
        return Lack.EPOCHS
    lower = int((late < early).sum())
    changes = pd.Series({size: f"{early[size]:.3g} → {late[size]:.3g}" for size in early.index})
    return _share(lower, len(early)), {"lower": lower, "of": len(early), "parts": _each(changes, str)}


def _small_gradients(results: Results) -> Found:
    ducb, adadelta = (float(_last(results, name)["grad_norm"].median()) for name in ("ducb", "adadelta"))
    norms, best = _last(results, "sgd").set_index("run")["grad_norm"], best_sgd(results.metrics)
    names = ("SGD of the best objective", "SGD of the best test error")
    others = {"AdaDelta": adadelta, **{name: float(norms[run]) for name, run in zip(names, best, strict=False)}}
    lower = sum(ducb < other for other in others.values())
    told = ", ".join(f"{name} {value:.2g}" for name, value in others.items())
    return _share(lower, len(others)), {"ducb": ducb, "others": told}


def _cost(results: Results) -> Found:
    table = results.timing
    if table.empty:
        return Lack.TIMINGS
    sgd = table[table["algorithm"] == "sgd"].groupby("batch_size")["milliseconds"].median()
    ducb = table[table["algorithm"] == "ducb"].pivot_table("milliseconds", "batch_size", "epoch")
    ratios = ducb.div(sgd, axis=0).dropna() if len(ducb) else ducb
    if min(ratios.shape, default=0) < 2:
        return Lack.CELLS
    least, most = float(ratios.min().min()), float(ratios.max().max())
    growth = ratios.iloc[:, -1] / ratios.iloc[:, 0]
    grown = growth >= GROWTH
    holds = least >= LEAST_COST_RATIO and most <= COST_RATIO[1], grown.mean() > 0.5, growth.iloc[-1] < growth.iloc[0]
    numbers = {"least": least, "most": most, "grown": int(grown.sum()), "of": len(growth)}
    return _share(sum(map(bool, holds)), 3), {**numbers, "growth": _each(growth - 1, "{:+.1%}".format)}


def _published_ratio() -> str:
    ratios = [value / row.sgd for row in TABLE_1.values() for value in row.ducb]
    least, most = COST_RATIO
    return f"{least}–{most}× (its Table 1: {min(ratios):.2f}–{max(ratios):.2f})"


RULES = (
    Rule(
        "All DUCB runs end with a lower training objective than every other run",
        "15 of 15",
        "reproduced: all of them lie below the minimum of the rest; not: none",
        "{below} of {of} end below {best:.2g}, the lowest of the other {rest} ({parts})",
        _lowest_objective,
        ("ducb", "sgd"),
    ),
    Rule(
        "Median test error at the end, DUCB / AdaDelta / SGD",
        " / ".join(f"{value:.2%}" for value in MEDIAN_TEST_ERROR.values()),
        "reproduced: the same order, at no less than half of each distance; partly: DUCB lowest; not: otherwise",
        "{ducb:.2%} / {adadelta:.2%} / {sgd:.2%}",
        _median_errors,
        tuple(MEDIAN_TEST_ERROR),
    ),
    Rule(
        "The best single test error is a DUCB run's",
        f"{BEST_TEST_ERROR:.2%}, DUCB",
        "reproduced: DUCB alone has the minimum over all runs at the end; partly: DUCB among others; not: otherwise",
        "{first.test_error:.2%}, {names} (batch {first.batch_size}, seed {first.seed}); the best DUCB run has "
        "{ducb:.2%}",
        _best_error,
        ("ducb", "sgd"),
    ),
    Rule(
        "AdaDelta's settings lie in the top 30 % of SGD's",
        "yes",
        "rank of each AdaDelta setting's median objective among SGD's; reproduced: all in the top 30 %; not: none",
        "{inside} of {of} do; SGD settings that are better: {better}",
        _adadelta_ranks,
        ("adadelta", "sgd"),
    ),
    Rule(
        "DUCB at batch 64 has the best test error of all after 1000 s of the paper's hardware",
        "yes",
        "1000 s are 33,000 minibatches; single runs when DUCB-64 is there: reproduced: best; partly: in the first "
        "quarter; not: otherwise",
        "{mine:.2%} after {when:.1f} s, where its {steps:,} minibatches are done; {better} of {of} others are better "
        "then, the best {best} with {error:.2%} (between recorded epochs, a straight line)",
        _best_by_the_clock,
    ),
    Rule(
        "DUCB lowers its rate near the optimum",
        "yes",
        "mean rate over the last tenth of the epochs against the second tenth: reproduced: lower at "
        "all batch sizes; not: at none",
        "lower at {lower} of {of} batch sizes: {parts}",
        _falling_rate,
        ("ducb",),
    ),
    Rule(
        "DUCB ends at smaller gradient norms",
        "yes",
        "median at the end against AdaDelta's and the two best SGD runs': reproduced: below all; not: below none",
        "median {ducb:.2g}; {others}",
        _small_gradients,
        ("ducb", "adadelta", "sgd"),
    ),
    Rule(
        "A DUCB minibatch costs 1.6–3.6 of SGD's, growing over training, less so at large batches",
        _published_ratio(),
        "all ratios within 1.5–3.6; growing at most batch sizes, by 5 % or more as in its Table 1; growing less at the "
        "largest: reproduced: all three; not: none",
        "{least:.2f}–{most:.2f}×; grows at {grown} of {of} batch sizes: {growth}",
        _cost,
    ),
)
"""The claims in the paper's order."""
