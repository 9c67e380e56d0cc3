"""The paper's eight claims, each judged by code: what it printed, what we measured, the rule, the verdict.

A judge returns a `Finding`, or a sentence where the data it needs are not there. What is compared with what follows the
paper's own words; where a claim holds in part, the verdict says so rather than choosing a side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hotswap.report.looks import families_of
from hotswap.report.results import Results
from hotswap.report.summaries import at_epoch, settings, window_mean
from hotswap.studies.exchange.best_runs import best_sgd
from hotswap.studies.paper import (
    ADADELTA_TOP_SHARE,
    BEST_TEST_ERROR,
    COST_RATIO,
    DUCB_LEADS_AFTER_SECONDS,
    MEDIAN_TEST_ERROR,
    TABLE_1,
)

__all__ = ["Claim", "Verdict", "judge", "worth_showing"]

Verdict = Literal["reproduced", "partly reproduced", "not reproduced"]
YES: Verdict = "reproduced"
PARTLY: Verdict = "partly reproduced"
NO: Verdict = "not reproduced"

LEAST_COST_RATIO = 1.5  # the paper says 1.6, and its Table 1 has 1.53
GROWTH = 1.05  # of a minibatch's cost, from the first epoch timed to the last; less may be the clock's


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


class Finding(NamedTuple):
    """What a judge found."""

    ours: str
    verdict: Verdict


def judge(results: Results) -> list[Claim]:
    """All eight, in order."""
    claims = []
    for number, (claim, paper, rule, decide) in enumerate(_CLAIMS, start=1):
        found = decide(results)
        ours, verdict = (found, None) if isinstance(found, str) else found
        claims.append(Claim(number, claim, paper, ours, rule, verdict))
    return claims


def worth_showing(results: Results) -> bool:
    """Whether a study has something to say about the claims: not if it is one of variants, without DUCB itself."""
    variants = any(family.algorithm == "hotswap" for family in families_of(results.specs))
    return not variants or "ducb" in set(results.metrics["algorithm"])


def _between(good: int, of: int) -> Verdict:
    """The verdict where `good` of so many comparisons hold: all of them, some or none."""
    if good == of:
        return YES
    return PARTLY if good else NO


def _needs(results: Results, *algorithms: str) -> str | None:
    """What is missing to speak of how runs of these algorithms end, as a sentence; None if nothing is."""
    there = set(results.metrics["algorithm"])
    absent = [results.looks.label_of(name) for name in algorithms if name not in there]
    if absent:
        return f"no verdict: no runs of {' and '.join(absent)}"
    return f"no verdict: {results.unfinished}" if results.unfinished else None


def _lowest_objective(results: Results) -> Finding | str:
    metrics = results.metrics
    if (lack := _needs(results, "ducb", "sgd")) is not None:
        return lack
    last = at_epoch(metrics, results.last_epoch)
    ours, rest = last[last["algorithm"] == "ducb"], last[last["algorithm"] != "ducb"]
    best = float(rest["train_nll"].min())
    if not np.isfinite(best):
        return "no verdict: no other run has a finite training objective"
    below = ours["train_nll"] < best
    by_size = below.groupby(ours["batch_size"]).agg(["sum", "count"])
    parts = ", ".join(f"{row['sum']} of {row['count']} at {size}" for size, row in by_size.iterrows())
    text = f"{int(below.sum())} of {len(ours)} end below {best:.2g}, the lowest of the other {len(rest)} ({parts})"
    return Finding(text, _between(int(below.sum()), len(ours)))


def _median_errors(results: Results) -> Finding | str:
    metrics = results.metrics
    if (lack := _needs(results, *MEDIAN_TEST_ERROR)) is not None:
        return lack
    last = at_epoch(metrics, results.last_epoch)
    medians = last.groupby("algorithm")["test_error"].median()[list(MEDIAN_TEST_ERROR)]
    if medians.isna().any():
        return "no verdict: some runs have no test error"
    ducb, adadelta, sgd = (float(medians[name]) for name in ("ducb", "adadelta", "sgd"))
    theirs = MEDIAN_TEST_ERROR
    near, far = theirs["adadelta"] - theirs["ducb"], theirs["sgd"] - theirs["adadelta"]
    verdict = NO
    if ducb < min(adadelta, sgd):
        wide = adadelta - ducb >= near / 2 and sgd - adadelta >= far / 2
        verdict = YES if wide else PARTLY
    return Finding(f"{ducb:.2%} / {adadelta:.2%} / {sgd:.2%}", verdict)


def _best_error(results: Results) -> Finding | str:
    metrics = results.metrics
    if (lack := _needs(results, "ducb", "sgd")) is not None:
        return lack
    last = at_epoch(metrics, results.last_epoch).dropna(subset="test_error")
    if not (last["algorithm"] == "ducb").any():
        return "no verdict: no run of DUCB has a test error"
    best = float(last["test_error"].min())
    winners = last[last["test_error"] == best]
    who = sorted(set(winners["algorithm"]))
    verdict = NO
    if "ducb" in who:
        verdict = YES if who == ["ducb"] else PARTLY
    first = winners.iloc[0]
    names = " and ".join(results.looks.label_of(name) for name in who)
    ducb = float(last.loc[last["algorithm"] == "ducb", "test_error"].min())
    text = f"{best:.2%}, {names} (batch {int(first['batch_size'])}, seed {int(first['seed'])})"
    return Finding(text if "ducb" in who else f"{text}; the best DUCB run has {ducb:.2%}", verdict)


def _adadelta_ranks(results: Results) -> Finding | str:
    metrics = results.metrics
    if (lack := _needs(results, "adadelta", "sgd")) is not None:
        return lack
    table = settings(metrics, results.last_epoch)
    sgd = table.loc[table["algorithm"] == "sgd", "train_nll"].to_numpy()
    ours = table[table["algorithm"] == "adadelta"].set_index("batch_size")["train_nll"].sort_index()
    better = {int(size): float((sgd < value).mean()) for size, value in ours.items()}
    inside = sum(share <= ADADELTA_TOP_SHARE for share in better.values())
    parts = ", ".join(f"{share:.0%} at {size}" for size, share in better.items())
    return Finding(
        f"{inside} of {len(better)} do; SGD settings that are better: {parts}", _between(inside, len(better))
    )


STEPS_AT_1000_S = 1000 * round(DUCB_LEADS_AFTER_SECONDS / TABLE_1[64].ducb_epoch_100)
"""How many minibatches of batch size 64 DUCB had done by then, in thousands: 33,000."""


def _best_by_the_clock(results: Results) -> Finding | str:
    curves = results.curves
    if curves.empty:
        return "no verdict: no single runs against the clock"
    curves = curves.dropna(subset=["seconds", "test_error"]).sort_values("epoch")
    ours = curves[(curves["algorithm"] == "ducb") & (curves["batch_size"] == 64)]
    others = curves[~curves["run"].isin(ours["run"])]
    if ours.empty or others.empty or ours["steps"].max() < STEPS_AT_1000_S:
        return "no verdict: no single run of DUCB at batch 64 that is long enough, beside others"
    when = float(np.interp(STEPS_AT_1000_S, ours["steps"], ours["seconds"]))
    mine = float(np.interp(when, ours["seconds"], ours["test_error"]))
    errors = {
        results.label(rows.iloc[0]): float(np.interp(when, rows["seconds"], rows["test_error"]))
        for _, rows in others.groupby("run")
    }
    better = sum(error < mine for error in errors.values())
    best = min(errors, key=errors.__getitem__)
    text = f"{mine:.2%} after {when:.1f} s, where its {STEPS_AT_1000_S:,} minibatches are done; "
    text += f"{better} of {len(errors)} others are better then, the best {best} with {errors[best]:.2%} "
    text += "(between recorded epochs, a straight line)"
    place = YES if better == 0 else (PARTLY if better <= len(errors) // 4 else NO)
    return Finding(text, place)


def _falling_rate(results: Results) -> Finding | str:
    if (lack := _needs(results, "ducb")) is not None:
        return lack
    metrics = results.metrics[results.metrics["algorithm"] == "ducb"]
    tenth = results.last_epoch // 10  # 50 epochs of 500
    early = window_mean(metrics, "mean_lr", tenth, 2 * tenth, ["batch_size"])
    late = window_mean(metrics, "mean_lr", results.last_epoch - tenth, results.last_epoch, ["batch_size"])
    if early.empty:
        return "no verdict: too few epochs recorded"
    lower = int((late < early).sum())
    parts = ", ".join(f"{early[size]:.3g} → {late[size]:.3g} at {size}" for size in early.index)
    return Finding(f"lower at {lower} of {len(early)} batch sizes: {parts}", _between(lower, len(early)))


def _small_gradients(results: Results) -> Finding | str:
    metrics = results.metrics
    if (lack := _needs(results, "ducb", "adadelta", "sgd")) is not None:
        return lack
    last = at_epoch(metrics, results.last_epoch)
    ducb = float(last.loc[last["algorithm"] == "ducb", "grad_norm"].median())
    others = {"AdaDelta": float(last.loc[last["algorithm"] == "adadelta", "grad_norm"].median())}
    names = ("SGD of the best objective", "SGD of the best test error")
    for name, run in zip(names, best_sgd(metrics), strict=False):
        others[name] = float(last.loc[last["run"] == run, "grad_norm"].iloc[0])
    lower = sum(ducb < other for other in others.values())
    parts = ", ".join(f"{name} {value:.2g}" for name, value in others.items())
    return Finding(f"median {ducb:.2g}; {parts}", _between(lower, len(others)))


def _cost(results: Results) -> Finding | str:
    table = results.timing
    if table.empty:
        return "no verdict: no timings of single runs"
    sgd = table[table["algorithm"] == "sgd"].groupby("batch_size")["milliseconds"].median()
    ducb = table[table["algorithm"] == "ducb"].pivot_table("milliseconds", "batch_size", "epoch")
    ratios = ducb.div(sgd, axis=0).dropna() if len(ducb) else ducb
    if min(ratios.shape, default=0) < 2:
        return "no verdict: it takes timings of DUCB and SGD at two batch sizes and two epochs or more"
    least, most = float(ratios.min().min()), float(ratios.max().max())
    growth = ratios.iloc[:, -1] / ratios.iloc[:, 0]
    inside = least >= LEAST_COST_RATIO and most <= COST_RATIO[1]
    grown = growth >= GROWTH
    flatter = bool(growth.iloc[-1] < growth.iloc[0])
    text = f"{least:.2f}–{most:.2f}×; grows at {int(grown.sum())} of {len(growth)} batch sizes: "
    text += ", ".join(f"{change - 1:+.1%} at {size}" for size, change in growth.items())
    return Finding(text, _between(inside + bool(grown.mean() > 0.5) + flatter, 3))


def _published_ratio() -> str:
    ratios = [value / row.sgd for row in TABLE_1.values() for value in row.ducb]
    least, most = COST_RATIO
    return f"{least}–{most}× (its Table 1: {min(ratios):.2f}–{max(ratios):.2f})"


_CLAIMS: tuple[tuple[str, str, str, Callable[[Results], Finding | str]], ...] = (
    (
        "All DUCB runs end with a lower training objective than every other run",
        "15 of 15",
        "reproduced: all of them lie below the minimum of the rest; not: none",
        _lowest_objective,
    ),
    (
        "Median test error at the end, DUCB / AdaDelta / SGD",
        " / ".join(f"{value:.2%}" for value in MEDIAN_TEST_ERROR.values()),
        "reproduced: the same order, at no less than half of each distance; partly: DUCB lowest; not: otherwise",
        _median_errors,
    ),
    (
        "The best single test error is a DUCB run's",
        f"{BEST_TEST_ERROR:.2%}, DUCB",
        "reproduced: DUCB alone has the minimum over all runs at the end; partly: DUCB among others; not: otherwise",
        _best_error,
    ),
    (
        "AdaDelta's settings lie in the top 30 % of SGD's",
        "yes",
        "rank of each AdaDelta setting's median objective among SGD's; reproduced: all in the top 30 %; not: none",
        _adadelta_ranks,
    ),
    (
        "DUCB at batch 64 has the best test error of all after 1000 s of the paper's hardware",
        "yes",
        "1000 s are 33,000 minibatches; single runs when DUCB-64 is there: reproduced: best; partly: in the first "
        "quarter; not: otherwise",
        _best_by_the_clock,
    ),
    (
        "DUCB lowers its rate near the optimum",
        "yes",
        "mean rate over the last tenth of the epochs against the second tenth: reproduced: lower at "
        "all batch sizes; not: at none",
        _falling_rate,
    ),
    (
        "DUCB ends at smaller gradient norms",
        "yes",
        "median at the end against AdaDelta's and the two best SGD runs': reproduced: below all; not: below none",
        _small_gradients,
    ),
    (
        "A DUCB minibatch costs 1.6–3.6 of SGD's, growing over training, less so at large batches",
        _published_ratio(),
        "all ratios within 1.5–3.6; growing at most batch sizes, by 5 % or more as in its Table 1; growing less at the "
        "largest: reproduced: all three; not: none",
        _cost,
    ),
)
