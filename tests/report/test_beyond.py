"""The report on a study of variants: its files, its figures, its page, and what it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.report import Results, comparison, judge, load_results, write, write_report
from hotswap.report.beyond import prize
from hotswap.report.claims import worth_showing
from hotswap.report.comparison import compare, with_costs
from hotswap.report.figures import draw_objective_and_cost, draw_ratios
from hotswap.report.figures.style import styled
from hotswap.report.origin import origin_of
from hotswap.report.page.data import page_data
from hotswap.report.summaries import chosen, rates_of
from hotswap.report.write import BEYOND
from hotswap.studies import PAPER
from tests.report.conftest import COARSE, LARGEST
from tests.report.made_up import results, row
from tests.report.variants import TRAINED, compared, made, study, variant_rows

OTHERS = [name for name in TRAINED if name != "paper"]
GROUPS = ("bandits", "paces", "searches", "bases", "judges", "several")


@pytest.fixture(autouse=True, scope="module")
def shipped_once() -> Iterator[None]:
    """The rivals that come with the package are read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "load_results", cache(load_results))
        yield


def save_some(figure: Figure, path: Path) -> None:
    """Pictures coarsely, and as text only what is looked at: drawing takes most of the time."""
    if path.suffix == ".png" or re.search("beyond-(bandits|ratios)", path.name):
        with styled():
            figure.savefig(path, format=path.suffix[1:], dpi=150 / COARSE, bbox_inches="tight")
    else:
        path.write_text("<svg/>", encoding="utf-8")


@pytest.fixture(scope="module")
def report(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the command writes it, and what that says."""
    folder = tmp_path_factory.mktemp("report")
    for name in ("claims.md", "beyond-rest.png"):
        (folder / name).write_bytes(b"of an earlier report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "save", save_some)
        done = CliRunner().invoke(app, ["report", str(small_folder), "--out", str(folder)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    (folder / "said").write_text(done.output, encoding="utf-8")
    return folder


def test_files(report: Path) -> None:
    names = {path.name for path in report.iterdir()}
    assert {f"beyond-{group}.{ending}" for group in (*GROUPS, "ratios") for ending in ("png", "svg")} <= names
    assert names >= {"beyond-the-paper.md", "index.html", "figure-1.png", "choices.png"}
    assert not names & {"claims.md", "beyond-rest.png"}  # claims about DUCB, which was not trained, and a group of none
    for path in report.glob("beyond-*.png"):
        picture = matplotlib.image.imread(path)
        assert picture[..., :3].std() > 0.02, path.name
        assert max(picture.shape) < LARGEST / COARSE


def test_the_text_has_a_row_for_each(report: Path) -> None:
    text = (report / "beyond-the-paper.md").read_text(encoding="utf-8")
    assert text.startswith("# Beyond the paper: the study small")
    for name in TRAINED:
        assert f"\n| `{name}` | " in text
    assert "at the costs of 5 and 10 plain epochs" in text
    assert not re.search(r"\bnan\b|\binf\b", text)
    assert "runs, " in text  # what made the numbers


def test_figures_name_what_they_show(report: Path) -> None:
    curves = (report / "beyond-bandits.svg").read_text(encoding="utf-8")
    for name in ("ucb1", "AdaDelta", "the paper's algorithm", "SGD: the best tenth", "batch 32", "batch 64"):
        assert name in curves
    assert "adam 07 armijo" not in curves
    ratios = (report / "beyond-ratios.svg").read_text(encoding="utf-8")
    for name in ("SGD, best tenth", "judged by half", "Several hyperparameters at once", "at the cost of 10 epochs"):
        assert name in ratios


def test_the_page_has_the_section(report: Path) -> None:
    text = (report / "index.html").read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    data = json.loads(match[1])
    assert data["claims"] == []
    found = data["beyond"]
    assert [variant["name"] for variant in found["variants"]] == OTHERS
    assert [group["name"] for group in found["groups"]] == list(GROUPS)
    assert [rival["name"] for rival in found["rivals"]] == ["paper", "adadelta", "sgd tenth", "sgd best"]
    assert set(found["rivals"][2]["curves"]["32"]) == {"cost", "nll", "low", "high"}
    assert found["variants"][0]["at"]["10"]["64"]["ratio"] > 0


def test_only_what_is_ahead_of_all_is_marked() -> None:
    study = made({"ucb1": {64: 1.0, 128: 3.0}, "exp3s": float("nan")})
    ucb1, exp3s = page_data(study, [], [], [], origin_of(study), compare(study))["beyond"]["variants"]
    assert [ucb1["at"]["500"][size]["first"] for size in ("64", "128")] == [True, False]
    assert exp3s["at"]["20"]["64"] == {"nll": None, "error": 0.02, "ratio": None, "diverged": True, "first": False}


def test_the_command_prints_no_claims(report: Path) -> None:
    said = " ".join((report / "said").read_text(encoding="utf-8").split())
    assert "claim" not in said.replace("no claim 8", "").replace("no claim 5", "")
    assert "variants at equal cost: beyond-the-paper.md" in said


def test_claims_are_shown_where_ducb_was_trained(small_study: Results) -> None:
    assert not worth_showing(small_study)
    assert worth_showing(load_results())
    assert worth_showing(results())
    both = results([row("ducb"), *variant_rows("ucb1", 1.0)], specs=(study("ucb1"), PAPER))
    assert worth_showing(both)
    assert len(judge(both)) == 8


def test_a_study_without_variants_has_none_of_it(tmp_path: Path, coarse: None) -> None:
    (tmp_path / "beyond-ratios.png").write_bytes(b"of an earlier report")
    written = write_report(results([row("sgd", epoch=epoch) for epoch in (1, 2, 5)]), tmp_path)
    assert not {path.name for path in written} & set(BEYOND)
    assert not (tmp_path / "beyond-ratios.png").exists()
    assert '"beyond":null' in (tmp_path / "index.html").read_text(encoding="utf-8")


def without_passes(study: Results) -> Results:
    return replace(study, metrics=study.metrics.drop(columns="passes"))


STRANGE = {
    "one variant alone": lambda: results(variant_rows("ucb1", 1.0), specs=(study("ucb1"),)),
    "the paper's alone": lambda: results(variant_rows("paper", 1.0), specs=(study("paper"),)),
    "one epoch": lambda: results([row("ucb1", epoch=1, passes=781 * 5.0)], specs=(study("ucb1"),)),
    "all diverged": lambda: made({"ucb1": float("nan")}, adadelta=float("nan"), sgd=float("nan")),
    "objectives of 0": lambda: made({"ucb1": 0.0}, sgd=0.0),
    "passes not known": lambda: replace(
        made({"ucb1": 1.0}), metrics=made({"ucb1": 1.0}).metrics.drop(columns="passes")
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_strange_studies(kind: str, tmp_path: Path, undrawn: None) -> None:
    write_report(STRANGE[kind](), tmp_path)
    text = (tmp_path / "beyond-the-paper.md").read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_nothing_to_draw_is_no_figure() -> None:
    found = compared(made({"ucb1": float("nan")}))
    assert draw_objective_and_cost(found, ["ucb1"]) is None
    assert draw_objective_and_cost(found, ["exp3s"]) is None
    alone = compared(results(variant_rows("ucb1", 1.0), specs=(study("ucb1"),)))
    assert draw_ratios(alone, prize(alone)) is None


def test_arms_of_one_rate_are_drawn_together(small_study: Results) -> None:
    """The family has three momenta for each of 33 rates."""
    assert len(small_study.arm_values["momenta"]) == 99
    rates = rates_of(small_study, "momenta")
    assert len(rates) == 33
    assert list(rates) == sorted(rates, reverse=True)
    tables = chosen(small_study, "momenta")
    arms = small_study.arms[small_study.arms["run"] == "momenta-b32-s0"]
    other = small_study.arms[small_study.arms["run"] == "momenta-b32-s1"]
    taken = [part.groupby("epoch")["count"].sum() for part in (arms, other)]
    assert tables[32].shape[1] == 33
    assert tables[32].sum(axis=1).to_numpy() == pytest.approx(((taken[0] + taken[1]) / 20).to_numpy())
    top = [arm for arm, rate in enumerate(small_study.arm_values["momenta"]) if rate == rates[4]]
    both = small_study.arms[small_study.arms["run"].str.startswith("momenta-b32") & small_study.arms["arm"].isin(top)]
    expected = both.groupby("epoch")["count"].sum().reindex(tables[32].index, fill_value=0) / 20
    assert np.allclose(tables[32][4], expected)


def test_trials_tell_what_passes_do(small_study: Results) -> None:
    """A trial on the same minibatch takes one pass, so both ways of counting agree, up to the epochs between."""
    metrics = small_study.metrics[small_study.metrics["algorithm"].isin(["paper", "ucb1", "momenta"])]
    counted, summed = (with_costs(metrics, names)["cost"] for names in ({"paper", "ucb1", "momenta"}, ()))
    early = with_costs(metrics)["epoch"] <= 2
    assert counted[early].to_numpy() == pytest.approx(summed[early].to_numpy())  # every epoch was recorded
    assert counted.to_numpy() == pytest.approx(summed.to_numpy(), rel=0.15)
    plain = with_costs(small_study.metrics, {"no_search"})
    assert (plain["cost"] == plain["epoch"])[plain["algorithm"] == "no_search"].all()
