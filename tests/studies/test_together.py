"""Families that are trained as one: the same results, one unit, one checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from hotswap import Armijo, EpsilonGreedy, NoSearch
from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.errors import SettingError
from hotswap.studies import DucbFamily, HotSwapFamily, StudySpec, plan, timing
from hotswap.studies.folder import Store
from hotswap.studies.timing import time_minibatches
from hotswap.studies.training import RunOptions
from tests.studies.test_training import TOY, Quiet, run, tables

STUDY: StudySpec = replace(
    TOY,
    families=(
        DucbFamily(count=9),
        HotSwapFamily(name="plain", count=9),
        HotSwapFamily(name="greedy", count=9, bandit=EpsilonGreedy()),
        HotSwapFamily(name="swapped_adam", count=9, base="adam", high=1.0, search=Armijo()),
        HotSwapFamily(name="seldom", count=9, search=NoSearch(), search_every=3),
        HotSwapFamily(name="judged", count=9, next_weight=0.5),
        HotSwapFamily(name="momenta", count=3, momentum=(0.0, 0.5, 0.9), factored=True),
    ),
    batch_sizes=(64,),
    epochs=5,
)
OPTIONS = RunOptions(checkpoint_epochs=2, precision="fp64")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    run(folder, STUDY, OPTIONS)
    return folder


def test_those_that_can_be_are_one_unit() -> None:
    units = {unit.id: unit.families for unit in plan(STUDY)}
    assert units == {
        "ducb-b64": ("ducb",),
        "judged-b64": ("judged",),
        "momenta-b64": ("momenta",),
        "plain-and-3-more-b64": ("plain", "greedy", "swapped_adam", "seldom"),
    }


def test_parts_of_such_a_unit_may_divide_a_family() -> None:
    parts = [unit for unit in plan(STUDY, max_runs=3) if unit.id.startswith("plain")]
    assert [(unit.id, len(unit.runs), unit.families) for unit in parts] == [
        ("plain-and-3-more-b64-part1", 3, ("plain", "greedy")),
        ("plain-and-3-more-b64-part2", 3, ("greedy", "swapped_adam")),
        ("plain-and-3-more-b64-part3", 2, ("seldom",)),
    ]


def test_each_family_measures_what_it_does_alone(together: Path, tmp_path: Path) -> None:
    metrics, arms = tables(together)
    for name in ("plain", "greedy", "swapped_adam", "seldom"):
        run(tmp_path / name, STUDY.select(algorithms=[name]), OPTIONS)
        alone, taken = tables(tmp_path / name)
        ours = metrics[metrics["algorithm"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(ours, alone, check_like=True, rtol=1e-6)
        pd.testing.assert_frame_equal(arms[arms["run"].isin(alone["run"])].reset_index(drop=True), taken)


def test_the_papers_algorithm_by_either_name_is_the_same(together: Path) -> None:
    metrics, _ = tables(together)
    ours, theirs = (metrics[metrics["algorithm"] == name]["train_nll"].tolist() for name in ("plain", "ducb"))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_passes_are_counted_over_the_whole_run(together: Path) -> None:
    metrics, _ = tables(together)
    plain = metrics[metrics["run"] == "plain-b64-s0"].set_index("epoch")
    assert plain.loc[1, "passes"] == 10 * (3 + plain.loc[1, "trials"])
    assert plain.loc[5, "passes"] > 5 * 10 * 4
    seldom = metrics[metrics["run"] == "seldom-b64-s0"].set_index("epoch")
    assert seldom.loc[5, "passes"] == 5 * 10 * 3
    judged = metrics[metrics["run"] == "judged-b64-s0"].set_index("epoch")
    assert judged.loc[1, "passes"] == 10 * (4 + 2 * judged.loc[1, "trials"])
    assert metrics[metrics["algorithm"] == "ducb"]["passes"].isna().all()


def test_it_is_stopped_and_goes_on_exactly(together: Path, tmp_path: Path) -> None:
    study = STUDY.select(algorithms=["plain", "greedy", "swapped_adam", "seldom"])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, study, OPTIONS, Quiet(stop_at=3))
    again = run(tmp_path, study, OPTIONS)
    assert again.began == [("plain-and-3-more-b64", 2)]
    metrics, _ = tables(together)
    ours, _ = tables(tmp_path)
    theirs = metrics[metrics["run"].isin(ours["run"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, theirs, check_like=True, check_exact=True)


def test_status_knows_the_unit(together: Path) -> None:
    result = CliRunner().invoke(app, ["study", "status", str(together)], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "plain-and-3-more-b64" in result.output
    assert "4 of 4 units done" in result.output


def test_what_was_trained_together_is_timed_from_first_weights(together: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    rows = list(time_minibatches(Store.open(together), load_digits(), OPTIONS))
    assert {(row.algorithm, row.epoch) for row in rows if row.algorithm in ("plain", "judged")} == {
        ("plain", 0), ("judged", 1), ("judged", 3), ("judged", 5)
    }  # fmt: skip


def test_a_family_with_a_guard_is_read_and_not_trained(tmp_path: Path) -> None:
    study = replace(TOY, families=(*TOY.families, HotSwapFamily(name="guarded", guard=2.0)))
    assert StudySpec.from_dict(study.to_dict()) == study
    with pytest.raises(SettingError, match="The family 'guarded' has a guard, and hotswap no longer trains"):
        run(tmp_path, study, OPTIONS)
