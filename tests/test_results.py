"""The results in the repository are what they say they are."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from hotswap.bench.comparable import check_together
from hotswap.bench.exchange import read_results
from hotswap.report import Results, judge, load_results
from hotswap.report.beyond import prize
from hotswap.report.comparison import compare
from hotswap.report.origin import origin_of
from hotswap.store.shipped import shipped
from hotswap.studies import CONFIRMATION, EXTENSIONS, PAPER, StudySpec, plan
from hotswap.studies.extensions import CITED, FIRST
from hotswap.studies.rows import best_sgd

RESULTS = Path(__file__).parents[1] / "results"
BENCHMARKED = RESULTS / "tuning_free" / "runs.parquet"


@cache
def read(place: str) -> Results:
    """The results of a study in the repository; reading some takes seconds."""
    return load_results(RESULTS / place)


@pytest.fixture(scope="module")
def paper() -> Results:
    """The shipped results, whose checksums are checked where they are read."""
    results = load_results(shipped())
    assert results.missing == ()
    return results


def test_all_of_the_papers_study_is_there(paper: Results) -> None:
    document = json.loads((shipped() / "provenance.json").read_text(encoding="utf-8"))
    assert (document["fingerprint"], document["precision"]) == (PAPER.fingerprint(), "tf32")
    assert {spec.fingerprint() for spec in paper.specs} == {PAPER.fingerprint()}
    metrics, arms, provenance = paper.metrics, paper.arms, document["units"]
    finished = metrics[metrics["epoch"] == PAPER.epochs]
    assert sorted(finished["run"]) == sorted(run.id for run in PAPER.runs())
    assert len(finished) == 1110
    assert finished["algorithm"].value_counts().to_dict() == {"sgd": 1080, "adadelta": 15, "ducb": 15}
    assert (metrics.groupby("run")["epoch"].nunique() == len(PAPER.recorded_epochs())).all()
    assert set(arms["run"]) == {run for run in metrics["run"] if run.startswith("ducb")}
    assert set(provenance) == {unit.id for unit in plan(PAPER)}
    for done in provenance.values():
        for entry in done:
            assert {"torch", "device", "precision", "command", "date", "seconds"} <= set(entry)


def test_every_step_is_accounted_for(paper: Results) -> None:
    """Steps follow from batch size and epoch; arms taken are at most the steps of an epoch."""
    metrics, arms = paper.metrics, paper.arms
    per_epoch = 50_000 // metrics["batch_size"]
    assert (metrics["steps"] == per_epoch * metrics["epoch"]).all()
    taken = arms.groupby(["run", "epoch"])["count"].sum()
    rows = metrics[metrics["algorithm"] == "ducb"].set_index(["run", "epoch"])
    assert (taken <= 50_000 // rows.loc[taken.index, "batch_size"]).all()
    assert (rows["trials"] >= 1).all()


def test_medians_at_the_end(paper: Results) -> None:
    """Recomputed from the rows: what the README says of them."""
    metrics = paper.metrics
    last = metrics[metrics["epoch"] == PAPER.epochs]
    medians = last.groupby(["algorithm", "batch_size"])["train_nll"].median().unstack("algorithm")
    assert isinstance(medians, pd.DataFrame)
    assert (medians["ducb"] < medians["adadelta"]).all()
    errors = last.groupby("algorithm")["test_error"].median()
    assert errors["ducb"] < errors["adadelta"] < errors["sgd"]
    settings = last[last["algorithm"] == "sgd"].groupby(["batch_size", "lr", "lr_decay", "momentum"])["train_nll"]
    assert len(settings) == 360
    assert (medians["ducb"].drop(1024) < settings.median().min()).all()
    assert last["train_nll"].notna().all()  # no run diverged


def test_the_units_took_what_the_readme_says(paper: Results) -> None:
    document = json.loads((shipped() / "provenance.json").read_text(encoding="utf-8"))
    seconds = [entry["seconds"] for done in document["units"].values() for entry in done]
    assert origin_of(paper).minutes == pytest.approx(sum(seconds) / 60)


def test_timings_of_single_runs() -> None:
    """Tables 1 and 2: five batch sizes, SGD and AdaDelta once, DUCB from three epochs."""
    timing = pd.read_parquet(shipped() / "timing.parquet")
    cells = {(name, size, epoch) for size in PAPER.batch_sizes for name, epoch in CELLS}
    assert set(timing[["algorithm", "batch_size", "epoch"]].itertuples(index=False, name=None)) == cells
    assert len(timing) == len(cells) == 25
    steps = 50_000 // timing["batch_size"]
    assert (timing["milliseconds"] * steps / 1e3).to_list() == pytest.approx(timing["seconds"].to_list())
    ducb = timing["algorithm"] == "ducb"
    assert (timing["trials"][ducb] >= 1).all()
    assert (timing["trials"][~ducb] == 0).all()


CELLS = (("sgd", 0), ("adadelta", 0), ("ducb", 100), ("ducb", 300), ("ducb", 500))


def test_curves_are_of_the_twelve_runs_of_figure_2(paper: Results) -> None:
    """One of each adaptive algorithm and batch size, and SGD's two best in retrospect, against the clock."""
    best = best_sgd(paper.metrics)
    curves = pd.read_parquet(shipped() / "curves.parquet")
    adaptive = [f"{name}-b{size}-s0" for name in ("adadelta", "ducb") for size in PAPER.batch_sizes]
    assert sorted(curves["run"].unique()) == sorted([*adaptive, *best])
    assert len(best) == 2
    for _, run in curves.groupby("run"):
        assert run.sort_values("epoch")["epoch"].to_list() == list(PAPER.recorded_epochs())
        assert run.sort_values("epoch")["seconds"].is_monotonic_increasing


def test_no_verdict_hangs_on_the_precision(paper: Results) -> None:
    """AdaDelta, DUCB and some of SGD were trained in full precision as well."""
    adaptive, sgd = (read(f"fp32/{name}.parquet") for name in ("adaptive", "sgd"))
    for part in (adaptive, sgd):
        assert part.unfinished is None
        assert part.last_epoch == PAPER.epochs
        assert {finish["precision"] for done in part.units.values() for finish in done} == {"fp32"}
    assert sorted(adaptive.metrics["run"].unique()) == sorted(r.id for r in PAPER.runs() if r.algorithm != "sgd")
    schedules = [run for run in PAPER.runs() if run.algorithm == "sgd" and run.batch_size == 1024]
    assert len(set(sgd.metrics["run"]) & {run.id for run in schedules}) == len(schedules) // len(PAPER.seeds)
    mixed = paper.with_runs_of(adaptive).with_runs_of(sgd)
    assert not mixed.metrics.equals(paper.metrics)
    assert [claim.verdict for claim in judge(mixed)] == [claim.verdict for claim in judge(paper)]


def test_the_preset_is_what_the_studies_beyond_the_paper_chose_and_confirmed(paper: Results) -> None:
    """It leads everywhere, from the seeds it was chosen from and from others; every variant was compared everywhere."""
    verdicts = {}
    for study in (EXTENSIONS, CONFIRMATION):
        comparison = compare(read(study.name), paper)
        assert comparison is not None
        assert comparison.seeds == study.seeds
        values = [
            comparison.value(family.name, size, cost)
            for family in comparison.variants
            for size in PAPER.batch_sizes
            for cost in (20, 500)
        ]
        assert not any(math.isnan(value) for value in values)
        verdicts[study.name] = [standing.variant for standing in prize(comparison).winners]
    assert set(EXTENSIONS.seeds).isdisjoint(CONFIRMATION.seeds)
    assert verdicts["extensions"] == ["adam_05_armijo"]  # tests/test_presets.py: it is `hotswap.presets.adam`
    assert "adam_05_armijo" in verdicts["confirmation"]


@pytest.mark.parametrize(
    ("folder", "study"),
    [
        ("extensions", EXTENSIONS),
        ("confirmation", CONFIRMATION),
        ("cited", CITED),
        ("first_decrease", FIRST),
    ],
)
def test_every_other_study_is_there_to_its_end(folder: str, study: StudySpec) -> None:
    results = read(folder)
    assert {spec.fingerprint() for spec in results.specs} == {study.fingerprint()}
    last = results.metrics[results.metrics["epoch"] == study.epochs]
    every = replace(study, families=(*study.families, *study.set_aside), set_aside=())  # also what is trained no more
    assert sorted(last["run"]) == sorted(run.id for run in every.runs())
    assert last["train_nll"].map(math.isfinite).all()


@pytest.mark.skipif(not BENCHMARKED.exists(), reason="the benchmark has not been run")
def test_the_benchmark_is_of_full_size_and_undamaged() -> None:
    results = read_results(BENCHMARKED.parent)
    assert {result.run.size for result in results} == {"full"}
    assert [result.run.id for result in results if result.state in ("damaged", "outdated")] == []
    assert all({"torch", "device", "command", "date"} <= set(result.origin) for result in results)
    assert len({result.run.id for result in results}) == len(results)
    check_together(results, str(BENCHMARKED.parent))


def test_the_wheel_brings_them_along(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 8e6
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        assert "hotswap/py.typed" in archive.namelist()
        inside = {name.removeprefix("hotswap/") for name in archive.namelist() if "/results/tuning_free/" in name}
    assert inside == {str(path.relative_to(root)) for path in (root / "results" / "tuning_free").iterdir()}
    code = "from hotswap.store.shipped import shipped; print(shipped())"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=tmp_path / "installed", check=True, capture_output=True, text=True)
    assert Path(found.stdout.strip()) == tmp_path / "installed" / "hotswap" / "results" / "paper"
