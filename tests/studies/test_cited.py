"""The study of what the paper cites, at toy size on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hotswap.report.comparison import with_costs
from hotswap.studies import CITED, PAPER, STUDIES, VsgdFamily
from hotswap.studies.training import RunOptions
from tests.studies.test_training import TOY, run, tables


def test_the_study_is_the_papers_with_other_algorithms() -> None:
    assert STUDIES["cited"] is CITED
    assert replace(CITED, name=PAPER.name, families=PAPER.families) == PAPER
    assert CITED.families == (VsgdFamily(),)
    assert len(CITED.runs()) == 15


def test_it_trains_and_costs_two_gradients_a_step(tmp_path: Path) -> None:
    small = replace(TOY, name=CITED.name, families=CITED.families, batch_sizes=(32, 64), seeds=(0, 1))
    run(tmp_path, small, RunOptions(checkpoint_epochs=1))
    metrics, _ = tables(tmp_path)
    assert set(metrics["algorithm"]) == {"vsgd"}
    rows = with_costs(metrics, counted=("vsgd",))
    assert (rows["passes"] == 6 * rows["steps"]).all()
    assert (rows["cost"] == 2 * rows["epoch"]).all()
    for _, curve in rows.groupby("run"):
        assert curve["train_nll"].iloc[-1] < curve["train_nll"].iloc[0]
