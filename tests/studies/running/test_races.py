"""Races as an algorithm of studies, at toy size on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

import hotswap
from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.errors import SettingError
from hotswap.networks import multilayer_perceptron
from hotswap.report.extensions.costs import with_costs
from hotswap.searches import Backtracking, FirstDecrease
from hotswap.studies import (
    PAPER,
    RACES,
    RACES_50,
    STUDIES,
    ConvolutionalSpec,
    HotSwapFamily,
    RaceFamily,
    StudySpec,
    load_study,
)
from hotswap.studies.running import timing
from hotswap.studies.running.timing import time_minibatches
from hotswap.studies.running.train import RunOptions
from hotswap.studies.storage.store import Store
from tests.studies.running.test_train import TOY, Quiet, assert_same, run, tables

ROUNDS = ((0.1, 4), (0.4, 2), (0.6, 1))  # until steps 6, 24 and 36 at batch size 64
FAMILY = RaceFamily(rounds=ROUNDS, least=3)
STUDY: StudySpec = replace(TOY, families=(FAMILY,), batch_sizes=(64,))
OPTIONS = RunOptions(checkpoint_epochs=1, precision="fp64")
TOML = """
name = "toy"
dataset = "digits"
train_images = 640
epochs = 6
batch_sizes = [64]
seeds = [0, 1]

[network]
hidden = [12, 8]

[race]
rounds = [[0.1, 4], [0.4, 2], [0.6, 1]]
least = 3
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("races")
    run(folder, STUDY, OPTIONS)
    return folder


def test_what_is_recorded_is_the_optimizers_leader(whole: Path) -> None:
    metrics, arms = tables(whole)
    digits = load_digits()
    x = torch.from_numpy(digits.train_inputs()[:640]).double()
    y = torch.from_numpy(digits.train_labels[:640])
    for seed in STUDY.seeds:
        recorded = metrics[metrics["run"] == f"race-b64-s{seed}"].set_index("epoch")
        network = multilayer_perceptron((64, 12, 8, 10), seed=seed).double()
        base = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
        optimizer = hotswap.Race(base, total_steps=60, rounds=ROUNDS, least=3)
        for epoch in range(1, 7):
            order = torch.randperm(640, generator=torch.Generator().manual_seed(epoch - 1)).view(-1, 64)
            taken: list[Any] = []
            for rows in order:
                optimizer.step(lambda rows=rows, network=network: cross_entropy(network(x[rows]), y[rows]))
                taken.append(optimizer.last_step)
            if epoch not in recorded.index:
                continue
            row = recorded.loc[epoch]
            assert row["train_nll"] == pytest.approx(cross_entropy(network(x), y).item(), rel=1e-6)
            assert row["mean_lr"] == pytest.approx(sum(step.values[step.leader]["lr"] for step in taken) / len(taken))
            assert row["passes"] == 3 * optimizer.cost.passes
            assert row["trials"] == 0
            counts = arms[(arms["run"] == f"race-b64-s{seed}") & (arms["epoch"] == epoch)]
            alive = {lane: sum(lane in step.losses for step in taken) for lane in range(6)}
            assert dict(zip(counts["arm"], counts["count"], strict=True)) == {k: n for k, n in alive.items() if n}


def test_costs_count_every_lane(whole: Path) -> None:
    metrics, _ = tables(whole)
    costs = with_costs(metrics, counted=["race"])
    steps = [6, 18, 12, 24]  # of 6, 4, 2 lanes and 1
    spent = sum(lanes * count for lanes, count in zip((6, 4, 2, 1), steps, strict=True))
    assert costs[costs["epoch"] == 6]["cost"].tolist() == pytest.approx([spent / 10] * 2)


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_a_study_that_was_interrupted_goes_on_exactly(whole: Path, tmp_path: Path, stop_at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, STUDY, OPTIONS, Quiet(stop_at=stop_at))
    assert run(tmp_path, STUDY, OPTIONS).began == [("race-b64", stop_at)]
    assert_same(tmp_path, whole)


def test_fewer_epochs_are_the_beginning_of_the_same_races(whole: Path, tmp_path: Path) -> None:
    part = STUDY.select(epochs=2)
    assert part.fingerprint() == STUDY.fingerprint()
    run(tmp_path, part, OPTIONS)
    metrics, all_of_them = tables(tmp_path)[0], tables(whole)[0]
    pd.testing.assert_frame_equal(metrics, all_of_them[all_of_them["epoch"] <= 2].reset_index(drop=True))
    run(tmp_path, STUDY, OPTIONS)
    assert_same(tmp_path, whole)


def test_races_of_another_length_are_other_races() -> None:
    shorter = replace(STUDY, families=(FAMILY,), epochs=4)
    assert shorter.family("race").length == 4  # type: ignore[attr-defined]
    assert shorter.fingerprint() != STUDY.fingerprint()
    with pytest.raises(SettingError, match=r"\[race\] length is 6, but the study has 7 epochs; it must be at least as"):
        replace(STUDY, epochs=7)


def test_buffers_of_a_network_go_with_their_lanes(tmp_path: Path) -> None:
    study = replace(STUDY, network=ConvolutionalSpec(channels=(4,)), seeds=(0,))
    run(tmp_path / "whole", study, OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "halves", study, OPTIONS, Quiet(stop_at=3))
    run(tmp_path / "halves", study, OPTIONS)
    assert_same(tmp_path / "halves", tmp_path / "whole")


def test_a_single_race_is_timed_from_the_middle_of_it(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six epochs these are the first, the third, in which two rounds end, and the last."""
    monkeypatch.setattr(timing, "SECONDS", 0)
    with Store.open(whole) as store:
        rows = list(time_minibatches(store, load_digits(), OPTIONS))
    assert [(row.algorithm, row.epoch) for row in rows] == [("race", 1), ("race", 3), ("race", 6)]


def test_from_a_file_by_the_command(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TOML, encoding="utf-8")
    assert load_study(file) == STUDY
    done = CliRunner().invoke(app, ["study", "run", str(file), "--out", str(tmp_path / "out"), "--epochs", "3"])
    assert done.exit_code == 0, done.output
    assert tables(tmp_path / "out")[0]["epoch"].max() == 3


WRONG = {
    "count": (1, "count is 1; it must be a whole number of at least 2."),
    "low": (0.5, "low is 0.5; it must be smaller than high, which is 0.03."),
    "rounds": (((0.1, 2),), "rounds cannot be used: Race(rounds=((0.1, 2),)): the last round keeps 2 lanes"),
    "least": (0, "least is 0; it must be a whole number of at least 1."),
    "warmup": (0.7, "decay cannot be used: Race(warmup=0.7, decay=0.4): together they are longer than the run."),
    "decay": (1.5, "decay is 1.5; it must be a number in [0, 1]."),
    "beta1": (1.0, "beta1 is 1.0; it must be a number in [0, 1)."),
    "beta2": (-0.1, "beta2 is -0.1; it must be a number in [0, 1)."),
    "weight_decay": (-1.0, "weight_decay is -1.0; it must be a finite number, 0 or more."),
    "eps": (0.0, "eps is 0.0; it must be a positive, finite number."),
    "length": (-1, "length is -1; it must be a whole number of at least 0."),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_refused(name: str) -> None:
    value, message = WRONG[name]
    with pytest.raises(SettingError) as caught:
        RaceFamily(**{name: value})
    assert str(caught.value).startswith(f"RaceFamily: {message}")


@pytest.mark.parametrize("wrong", [0.1, (0.1,), (1.0, 1), (0.1, 0), (0.1, 1.5), ("0.1", 1)])
def test_a_round_is_a_share_and_a_number_of_lanes(wrong: Any) -> None:
    with pytest.raises(SettingError, match=r"RaceFamily: rounds\[1\] is .*; it must be a pair of a share of all steps"):
        RaceFamily(rounds=((0.05, 2), wrong))


def test_too_few_steps_for_the_rounds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"these rounds need at least 60 steps\..* a smaller least than 20"):
        run(tmp_path, replace(STUDY, families=(RaceFamily(),), epochs=5), OPTIONS)


def test_the_study_of_the_first_decrease() -> None:
    study = STUDIES["first_decrease"]
    assert (study.batch_sizes, study.seeds, study.epochs) == (PAPER.batch_sizes, PAPER.seeds, PAPER.epochs)
    searches = {family.name: family.search for family in study.families if isinstance(family, HotSwapFamily)}
    assert searches == {
        "paper": Backtracking(),
        "first_decrease": FirstDecrease(),
        "first_headroom": FirstDecrease(headroom=1),
    }
    assert len(study.runs()) == 60


def test_the_studies_that_come_with_it() -> None:
    assert STUDIES["races"] is RACES
    assert STUDIES["races_50"] is RACES_50
    for study, epochs in ((RACES, 500), (RACES_50, 50)):
        assert (study.batch_sizes, study.seeds, study.network) == (PAPER.batch_sizes, PAPER.seeds, PAPER.network)
        assert study.families == (RaceFamily(length=epochs),)
        assert study.epochs == epochs
        assert len(study.runs()) == 15
    assert RACES.fingerprint() != RACES_50.fingerprint()
