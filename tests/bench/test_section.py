"""Every number of the page's section comes from a row of the tables: computed once more, from what was exported."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hotswap.bench.exchange import export_results, read_results
from hotswap.bench.methods import METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report import section_data
from hotswap.bench.report.comparing import Contest, Doubt, duels, leads
from hotswap.bench.report.methods import three_digits
from hotswap.bench.report.text import (
    contest_answer,
    coverage,
    duel_grid,
    hindsight,
    lead_grid,
    record_grid,
    score_grid,
    standing_grid,
)
from hotswap.bench.runs import PERCENTS, Result
from hotswap.bench.scores import Score, scores
from hotswap.bench.store import BenchStore
from hotswap.cli.report import _benchmark
from hotswap.errors import StudyError
from hotswap.report.page import render_benchmark
from hotswap.store import shipped as places
from hotswap.store.shipped import BENCHMARK, shipped
from tests.bench.helpers import RANKED, by_id, made, whole

W, V = "paper_network", "autoencoder"
SCORE = Score(
    V, "adamw", "default", seeds=5, unfinished=0, median=0.2, low=0.1, high=0.3, seconds=1.0, early={10: 2.0, 30: 1.5}
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    store = BenchStore.create(folder / "bench", "smoke")
    store.record(whole().values())
    export_results(store.results().values(), folder / "tables")
    return folder / "tables"


def published() -> Path | None:
    try:
        return shipped(*BENCHMARK)
    except StudyError:
        return None


def section_of(folder: Path) -> dict[str, Any]:
    found = section_data({result.run.id: result for result in read_results(folder)})
    assert found is not None
    return found


class Tables:
    """The rules of docs/benchmark.md, written a second time, with pandas."""

    def __init__(self, folder: Path) -> None:
        self.runs, points = (pd.read_parquet(folder / f"{name}.parquet") for name in ("runs", "points"))
        key = ["workload", "method", "configuration", "seed"]
        finite = points[points["train"].map(math.isfinite) & points["validation"].map(math.isfinite)]
        wide = finite.pivot_table(index=key, columns="percent", values="validation").reindex(columns=list(PERCENTS))
        settled = self.runs[self.runs["state"].isin(["finished", "diverged", "failed"])].set_index(key)
        self.finite = finite.set_index(key).join(settled["budget"], how="inner").sort_index()
        self.values = wide.reindex(settled.index)
        self.kept: dict[tuple[str, str, str], pd.DataFrame] = {}
        self.state = settled["state"]
        search = self.values.xs(100, level="seed").xs(REFERENCE, level="method")[100]
        search = search[(self.state.xs(100, level="seed").xs(REFERENCE, level="method") == "finished")]
        self.chosen = search.groupby("workload").idxmin().map(lambda pair: pair[1]).to_dict()

    def curves(self, workload: str, method: str, configuration: str) -> pd.DataFrame:
        """A row for each seed; a column for each percent."""
        key = (workload, method, configuration)
        if key not in self.kept:
            self.kept[key] = self._curves(*key)
        return self.kept[key]

    def _curves(self, workload: str, method: str, configuration: str) -> pd.DataFrame:
        of = self.values.index.get_level_values
        here = (of("workload") == workload) & (of("seed") != 100)
        rows = self.values[here & (of("method") == method) & (of("configuration") == configuration)].copy()
        first = rows[0].fillna(self.values.loc[here, 0].median())
        ended = self.state.loc[rows.index] == "finished"
        rows[100] = rows[100].where(ended)
        return pd.DataFrame({percent: rows[percent].fillna(first).clip(upper=first) for percent in PERCENTS})

    def time(self, workload: str, method: str, configuration: str) -> float:
        """The median over seeds of the share of the budget after which a run is as good as the reference."""
        rows = self.finite.loc[(workload, method, configuration)]
        rows = rows[rows.index != 100]
        there = rows[rows["validation"] <= self.level(workload)]
        first = (there["cost"] / there["budget"]).groupby("seed").min()
        seeds = self.curves(workload, method, configuration).index.get_level_values("seed")
        return float(first.reindex(seeds).fillna(math.inf).median())

    def level(self, workload: str) -> float:
        return float(self.curves(workload, REFERENCE, self.chosen[workload])[100].median())

    def score(self, workload: str, method: str) -> float:
        name = self.chosen[workload] if method == REFERENCE else "default"
        return float(self.curves(workload, method, name)[100].median()) / self.level(workload)


Read = tuple[dict[str, Any], dict[str, Result], Tables]


@pytest.fixture(scope="module", params=["made up", "published"])
def read(request: pytest.FixtureRequest, exported: Path) -> Read:
    """The section, the results that it is of, and their tables."""
    folder = exported if request.param == "made up" else published()
    if folder is None:
        pytest.skip("the benchmark has not been run")
    return section_of(folder), {result.run.id: result for result in read_results(folder)}, Tables(folder)


def test_every_number_is_that_of_rows(read: Read) -> None:
    section, _, tables = read
    assert section["unfinished"] == (tables.runs["state"] != "finished").sum()
    near = pytest.approx
    table: dict[str, dict[str, float]] = {}
    missed: dict[str, int] = {}
    for workload in section["workloads"]:
        name = workload["name"]
        if name in section["scored"]:
            assert workload["level"] == near(tables.level(name), rel=1e-5)
        for line in workload["lines"]:
            method = line["method"]
            configuration = "second" if line["second"] else tables.chosen[name] if method == REFERENCE else "default"
            curves = tables.curves(name, method, configuration)
            assert line["seeds"] == len(curves)
            for at, percent in enumerate(PERCENTS):
                values = curves[percent]
                shown = [line[part][at] for part in ("median", "low", "high")]
                assert shown == near([values.median(), values.min(), values.max()], rel=1e-5)
            if name in section["scored"]:
                assert line["ratio"] == near(curves[100].median() / tables.level(name), rel=1e-5)
                assert line["text"] == three_digits(float(curves[100].median()) / tables.level(name))
                early = {str(at): three_digits(float(curves[at].median()) / tables.level(name)) for at in (10, 30)}
                assert line["texts"] == early
                time = tables.time(name, method, configuration)
                assert (math.inf if line["time"] == "never" else line["time"]) == near(time, rel=1e-5)
                nearest = curves.median().min() / tables.level(name)
                assert line["missed"] == (nearest > 1.1)
                if not line["second"]:
                    missed[method] = missed.get(method, 0) + line["missed"]
                    table.setdefault(method, {})[name] = tables.score(name, method)
    for row in section["overall"]:
        own = pd.Series(table[row["method"]])
        assert (row["workloads"], len(row["misses"])) == (len(own), missed[row["method"]])
        assert row["mean"] == near(math.prod(own) ** (1 / len(own)), rel=1e-5)
        assert row["worst"] == near(own.max(), rel=1e-5)
        assert row["texts"]["worst"] == three_digits(float(own.max()))
        assert own[row["where"]] == own.max()
    for method, shares in section["profile"]["shares"].items():
        counts = [  # levels are scores, in six digits
            sum(score <= level * (1 + 5e-6) for score in table[method].values()) / len(section["scored"])
            for level in section["profile"]["levels"]
        ]
        assert shares == near(counts, rel=1e-5), method


def test_ours_against_the_others_is_what_the_tables_hold(read: Read) -> None:
    section, results, tables = read
    names = {row["method"] for row in section["overall"]} - {REFERENCE}
    ours = {name for name in names if METHODS[name].ours}
    there = {
        (workload["name"], line["method"])
        for workload in section["workloads"]
        for line in workload["lines"]
        if workload["name"] in section["scored"] and not line["second"]
    }
    for duel in section["duels"]:
        both = [w for w in section["scored"] if {(w, duel["ours"]), (w, duel["other"])} <= there]
        ratios = [tables.score(w, duel["ours"]) / tables.score(w, duel["other"]) for w in both]
        ahead, behind = sum(ratio < 1 / 1.01 for ratio in ratios), sum(ratio > 1.01 for ratio in ratios)
        assert (duel["ahead"], duel["of"]) == (ahead, len(both))
        assert duel["level"] == len(both) - ahead - behind
    assert {(duel["ours"], duel["other"]) for duel in section["duels"]} == {(a, b) for a in ours for b in names - ours}
    (answer,) = section["answers"]
    wins, level, losses = ({case["text"]: case["detail"] for case in group["cases"]} for group in answer["groups"])
    assert len({**wins, **level, **losses}) == len(section["scored"])
    for workload in section["scored"]:
        best = [
            min(tables.score(workload, name) for name in side if (workload, name) in there)
            for side in (ours, names - ours)
        ]
        group = level if max(best) <= 1.01 * min(best) else wins if best[0] < best[1] else losses
        told = group[workload.replace("_", " ")]
        assert re.findall(r" ([\d.]+)(?:,|$)", told) == [three_digits(value) for value in best]
    rows = {row[0]: row[1:] for row in standing_grid(scores(results)).rows}
    title = "the best of them ahead of the best of the other side, on"
    assert rows[title][0] == f"{len(wins)} of {len(section['scored'])}"
    worst = max(tables.score(workload, name) for workload, name in there if name in ours)
    assert f", {three_digits(worst)} (`" in rows["the worst score of all"][0]
    search = tables.values.xs(100, level="seed").xs(REFERENCE, level="method")[100]
    search = search[tables.state.xs(100, level="seed").xs(REFERENCE, level="method") == "finished"].unstack("workload")
    ratios = (search / pd.Series({w: tables.level(w) for w in search.columns})).dropna()
    name = ratios.map(math.log).mean(axis=1).idxmin()
    mean, worst = math.exp(ratios.map(math.log).loc[name].mean()), ratios.loc[name].max()
    (told,) = section["hindsight"]
    assert all(part in told for part in (f"`{name}`", three_digits(mean), three_digits(worst)))
    assert [told] == hindsight(results)


def test_scores_that_are_nearly_the_same_are_level() -> None:
    for ours, other, standing in ((1.0, 1.02, 1), (1.0, 1.005, 0), (1.005, 1.0, 0), (1.02, 1.0, -1)):
        first, second = (
            replace(SCORE, method=name, ratio=ratio) for name, ratio in (("hotswap_sgd", ours), ("adamw", other))
        )
        assert Contest("autoencoder", first, second).standing == standing
        found = [replace(SCORE, method="tuned", ratio=1.0), first, second]
        (group,) = (group for group in contest_answer(found).groups if group.cases)
        (case,) = group.cases
        assert group.outcome == {1: "ahead", 0: "level", -1: "behind"}[standing]
        assert (case.doubt == "") == (standing == 0)
        assert record_grid(found).rows[0][2] == f"{three_digits(ours)} {('=', '✓?', '✕?')[standing]}"


def without(results: dict[str, Result], *parts: str) -> dict[str, Result]:
    return {name: result for name, result in results.items() if not any(part in name for part in parts)}


def test_what_is_missing_is_said() -> None:
    results = whole()

    def said(some: dict[str, Result]) -> list[str]:
        return coverage(some, scores(some))

    assert said(results)[0] == "Scores are over 2 of 8 workloads."
    assert "`cifar_resnet` has not been run yet." in said(results)
    assert "DoG has no run that has ended. It has missing." in said(results)
    lost = {n: replace(r, state="diverged") if n.startswith(f"{V}-tuned") else r for n, r in results.items()}
    perfect = results | by_id(*(made(V, REFERENCE, seed, 0.0, configuration="sobol_00") for seed in range(5)))
    early = {n: r for n, r in results.items() if not n.startswith(f"{V}-tuned") or n.endswith("-100")}
    for some, why in (
        (without(results, f"{V}-tuned"), "yet: its reference is not there, which `hotswap bench run --method tuned`"),
        (without(results, f"{V}-tuned-sobol_07"), "yet: the search for its reference is not complete."),
        (lost, "yet: every run of the search for its reference diverged or raised an error."),
        (early, "yet: no run of its reference has finished."),
        (perfect, "because its reference makes no error at all"),
    ):
        assert said(some)[0] == "Scores are over 1 of 8 workloads."
        assert said(some)[1].startswith(f"`autoencoder` has no scores {why}")
    told = "AdamW has scores on 1 of 2 workloads only, and is left out where means are compared."
    assert told in said(without(results, f"{W}-adamw-"))
    told = f"On `{V}` there are configurations with fewer than 5 seeds, 1 of them; the fewest is 4."
    assert told in said(without(results, f"{V}-adamw-default-4"))
    told = f"A second try of SaLSa on `{W}` is due and has not been run yet."
    assert told in said(without(results, "-second-"))
    section = section_data(results)
    assert section is not None
    assert any("dog (default), seeds 0, 1, 2, 3, 4: missing." in told for told in section["troubles"])
    assert any("salsa (default), seeds 0, 1, 2: diverged." in told for told in section["troubles"])
    assert section["unfinished"] == 2 * 5 + 3 > len(section["troubles"])  # runs, where a sentence is about several


def contested(seeds: int = 5) -> dict[str, Result]:
    """Ours gain a half on one workload, and nothing on the other; each side's seeds lie one percent apart."""
    results = {name: result for name, result in whole().items() if result.run.method == REFERENCE}
    ends = {"hotswap_sgd": {W: 0.05, V: 0.1}, "adamw": {W: 0.1, V: 0.1}, "sgd": {W: 0.3, V: 0.3}}
    for method, by_workload in ends.items():
        for workload, end in by_workload.items():
            results |= by_id(*(made(workload, method, seed, end * (1 + 0.01 * seed)) for seed in range(seeds)))
    return results


def test_how_firm_a_lead_is() -> None:
    results = contested()
    (lead,) = leads(results, scores(results))
    assert (lead.ours, lead.other, lead.without, lead.few) == ("hotswap_sgd", "adamw", W, ())
    assert lead.ratio == pytest.approx(0.5**0.5)
    assert lead.then == pytest.approx(1)
    # The bootstrap once more, with all 5**5 draws of five seeds in place of some.
    draws = [sorted(draw)[2] for draw in product(range(5), repeat=5)]
    logs = np.log1p(0.01 * np.array(draws))
    numbers = np.random.default_rng(1)
    sums = sum(sign * numbers.choice(logs, 200_000) for sign in (1, 1, -1, -1)) / 2
    assert [lead.low, lead.high] == pytest.approx(0.5**0.5 * np.exp(np.quantile(sums, [0.025, 0.975])), rel=1e-3)
    assert leads(results, [score for score in scores(results) if score.method != "adamw"])[0].other == "sgd"
    assert leads({}, []) == []


def lead(results: dict[str, Result]) -> tuple[str, ...]:
    (row,) = lead_grid(results, scores(results)).rows
    return row


def test_the_table_of_leads() -> None:
    name, end, interval, rest, *early, second = lead(contested())
    assert (name, end, rest) == ("HotSwapSGD (the paper)", "0.707 (1 of 2)", "1.00 (`paper_network`)")
    low, high = map(float, interval.split(" to "))
    assert low < 0.707 < high
    assert second == "0.707"
    runs = scores(contested())
    ratios = [
        [s.early[percent] for s in runs if s.method == m] for percent in (10, 30) for m in ("hotswap_sgd", "adamw")
    ]
    means = [math.prod(some) ** 0.5 for some in ratios]
    assert [cell.split()[0] for cell in early] == [three_digits(means[i] / means[i + 1]) for i in (0, 2)]


def test_few_seeds_are_named_and_a_measure_of_0_has_no_lead() -> None:
    assert lead(contested(seeds=1))[2] == "–; few seeds on `autoencoder`, `paper_network`"
    perfect = contested() | by_id(made(W, "hotswap_sgd", 0, 0.0))
    assert lead_grid(perfect, scores(perfect)).rows == ()


def test_second_tries_of_the_others_count_against_ours() -> None:
    first = contested() | by_id(*(made(w, "dog", seed, {W: 0.3, V: 0.1}[w]) for w in (W, V) for seed in range(5)))
    again = by_id(*(made(W, "dog", seed, 0.04, configuration=SECOND) for seed in range(5)))
    assert lead(first | again)[1:2] == lead(first)[1:2]
    assert float(lead(first | again)[-1]) == pytest.approx(0.721 / 0.632, rel=1e-2)


def test_the_reason_for_a_doubt() -> None:
    for low, seeds, doubt in ((0.13, 5, Doubt.OVERLAP), (0.15, 5, Doubt.NONE), (0.15, 2, Doubt.FEW)):
        ours = replace(SCORE, method="hotswap_sgd", ratio=1.0, low=0.1, high=0.14)
        other = replace(SCORE, ratio=1.5, low=low, high=0.3, seeds=seeds)
        assert Contest(V, ours, other).doubt is doubt
    assert Contest(V, ours, replace(other, ratio=1.001)).doubt is Doubt.NONE  # nobody is ahead


def test_where_both_sides_are_as_good_as_tuned() -> None:
    tuned = [replace(SCORE, method="tuned", workload=name, ratio=1.0) for name in (V, W)]
    first = replace(SCORE, method="hotswap_sgd", ratio=1.0)
    behind = [replace(one, workload=W, ratio=1.2) for one in (first, SCORE)]
    rows = {row[0]: row[1:] for row in standing_grid([*tuned, first, replace(SCORE, ratio=1.005), *behind]).rows}
    assert rows["as good as tuned, within 1%, or better, on"] == ("1 of 2: `autoencoder`",) * 2


def test_surely_ahead_is_with_every_seed_and_not_only_level() -> None:
    tuned = replace(SCORE, method="tuned", ratio=1.0)
    ours = replace(SCORE, method="hotswap_sgd", ratio=1.0, low=0.1, high=0.12)
    for ratio, low, expected in ((1.5, 0.13, (1, 0, 1)), (1.5, 0.11, (1, 0, 0)), (1.005, 0.13, (0, 1, 0))):
        (duel,) = duels([tuned, ours, replace(SCORE, ratio=ratio, low=low)])
        assert (duel.ahead, duel.level, duel.surely) == expected


def strange() -> dict[str, dict[str, Result]]:
    """Results that have hardly anything in them."""
    lost = [1.0, math.nan, *[math.inf] * (len(PERCENTS) - 2)]
    stranger = [replace(one, run=replace(one.run, workload="elsewhere", method="mine")) for one in [made(W, "sgd")]]
    reference = {name: result for name, result in whole().items() if "-tuned-" in name}
    return {
        "one method and no reference": by_id(*(made(W, "hotswap_sgd", seed, 0.3) for seed in range(5))),
        "a reference alone": reference,
        "ours alone": {**reference, **by_id(*(made(W, "hotswap_sgd", seed, 0.3) for seed in range(5)))},
        "not a number": by_id(*(made(W, "sgd", seed, curve=lost) for seed in range(5))),
        "no points at all": by_id(replace(made(W, "sgd", state="failed"), points=())),
        "names that nobody knows": by_id(*stranger),
    }


@pytest.mark.parametrize("name", strange())
def test_strange_results_have_a_section(name: str) -> None:
    results = strange()[name]
    section = section_data(results)
    assert section is not None
    assert "<section" in render_benchmark(section)  # JSON without NaN, or it raises
    found = scores(results)
    assert coverage(results, found)
    grids = [grid(found) for grid in (standing_grid, record_grid, duel_grid, score_grid)]
    assert "nan" not in str([*grids, lead_grid(results, found)])
    assert bool(grids[0].rows) == (name == "ours alone")


def test_where_nothing_has_ended_there_is_no_section() -> None:
    assert section_data({}) is None
    assert section_data(by_id(made(W, "sgd", state="missing"))) is None
    assert '"benchmark":null' in render_benchmark(None)


def test_the_best_of_both_sides_are_named() -> None:
    ours, others = ([METHODS[n].title for n in RANKED if METHODS[n].ours is side] for side in (True, False))
    _, *best = standing_grid(scores(whole())).rows[0]
    assert [cell.rsplit(", ", 1)[0] for cell in best] == [ours[0], others[0]]


def test_a_report_has_the_section_where_results_come_along(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: str) -> Path:
        raise StudyError("none")

    monkeypatch.setattr(places, "shipped", absent)
    assert _benchmark() is None
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(places, "shipped", lambda *_: exported)
    assert _benchmark() == section_of(exported)
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    (tmp_path / "points.parquet").write_bytes((exported / "points.parquet").read_bytes())
    monkeypatch.setattr(places, "shipped", lambda *_: tmp_path)
    assert _benchmark() is None
    assert "the section on the benchmark cannot be made" in capsys.readouterr().out
