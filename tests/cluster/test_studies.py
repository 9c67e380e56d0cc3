"""Studies on a cluster of real nodes: the same metrics as on one machine, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from hotswap.cluster import Outcome, PerUnit
from hotswap.cluster.joining import join
from hotswap.data import load_digits
from hotswap.studies import StudySpec, Unit
from hotswap.studies.running.clustered import run_on_cluster
from hotswap.studies.running.train import RunOptions
from hotswap.studies.storage.store import Store
from tests.cluster.nodes import add_nodes, cluster_of, kill_node
from tests.studies.running.test_train import TOY, Quiet, assert_same, run

STUDY: StudySpec = replace(TOY, batch_sizes=(128,), seeds=(0,), epochs=200)  # a second or two for each unit
OPTIONS = RunOptions(checkpoint_epochs=20)
UNITS = ["adadelta-b128", "ducb-b128", "sgd-b128"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, STUDY, OPTIONS)
    return folder


class Watchful(Quiet):
    """Does something once, after so many epochs of all units together."""

    def __init__(self, after: int, deed: Callable[[], object]) -> None:
        super().__init__()
        self.after, self.deed = after, deed

    def epoch_done(self, unit: Unit, epoch: int, alive: int, seconds: float) -> None:
        super().epoch_done(unit, epoch, alive, seconds)
        if self.epochs == self.after:
            self.deed()


def train(folder: Path, listener: Quiet, *, storage: Path | None = None, **more: Any) -> Outcome:
    where = None if storage is None else str(storage)
    with (
        join(None, PerUnit(), where, listener.say) as joined,
        Store.create(folder, STUDY, precision="fp32") as store,
    ):
        return run_on_cluster(store, STUDY, load_digits(), OPTIONS, listener, joined, **more)


def test_the_metrics_are_those_of_one_machine(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    quiet = Quiet()
    assert train(tmp_path, quiet) == Outcome(3, 0, {})
    assert_same(tmp_path, whole)
    assert sorted(quiet.began) == [(unit, 0) for unit in UNITS]
    assert quiet.epochs == 3 * STUDY.epochs
    here, there = ({path.relative_to(f) for path in f.glob("checkpoints/*/epoch-*")} for f in (tmp_path, whole))
    assert here == there
    with Store.open(tmp_path) as store:
        assert {unit.state for unit in store.summary().units} == {"done"}


def test_checkpoints_in_a_storage_survive_a_node_and_a_worker(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    study, storage = tmp_path / "study", tmp_path / "storage"

    def kill_both() -> None:
        with Store.open(study) as store:
            places = [unit.where for unit in store.summary().units if "process" in unit.where]
        assert len(places) == 2
        os.kill(int(places[0].rpartition(" ")[2]), signal.SIGKILL)
        kill_node(cluster, cluster.worker_nodes.copy().pop())
        add_nodes(cluster, 1)

    watchful = Watchful(200, kill_both)
    assert train(study, watchful, storage=storage) == Outcome(3, 0, {})
    assert_same(study, whole)
    assert any("was interrupted" in said for said in watchful.said)
    assert any(epoch > 0 for _, epoch in watchful.began)
    assert sorted(path.name for path in study.glob("checkpoints/sgd*/*")) == [
        "epoch-000180.stored",
        "epoch-000200.stored",
    ]
    assert len(list(storage.glob("*/sgd-b128/*"))) == 2


def test_a_node_that_dies_while_checkpoints_come_back(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    def kill_one() -> None:
        kill_node(cluster, cluster.worker_nodes.copy().pop())
        add_nodes(cluster, 1)

    watchful = Watchful(200, kill_one)
    assert train(tmp_path, watchful) == Outcome(3, 0, {})
    assert_same(tmp_path, whole)
    assert [said for said in watchful.said if "was interrupted: its node died" in said]
    assert len(watchful.began) > 3


def test_it_stops_at_checkpoints_and_goes_on_here(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    stopping: list[bool] = []
    watchful = Watchful(10, lambda: stopping.append(True))
    outcome = train(tmp_path, watchful, asked_to_stop=lambda: bool(stopping))
    assert outcome.left
    again = run(tmp_path, STUDY, OPTIONS)  # without a cluster: the folder is one as any
    assert any(epoch > 0 for _, epoch in again.began)
    assert_same(tmp_path, whole)
