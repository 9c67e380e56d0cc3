"""A study and a benchmark on a cluster of this machine: the results of one machine, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from typer.testing import CliRunner

from benchmarks.cluster import overhead, planning, sleepers, stored
from hotswap import extensions
from hotswap.bench.running import BenchOptions, run_bench
from hotswap.bench.store import BenchStore
from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.errors import SettingError
from hotswap.studies import StudySpec
from hotswap.studies.folder import Store
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions
from hotswap.work import Outcome, PerUnit
from hotswap.work.on_ray import OnRay, join
from tests.bench.helpers import Silent
from tests.children import PATIENCE, child, hotswap_command
from tests.studies.test_training import TOML, TOY, Quiet, assert_same, run
from tests.work.gates import Gate
from tests.work.nodes import add_nodes, cluster_of, kill_node, node_of

STUDY: StudySpec = replace(TOY, seeds=(0,), epochs=25)
OPTIONS = RunOptions(checkpoint_epochs=5)
TEXT = TOML.format(epochs=STUDY.epochs).replace("seeds = [0, 1]", "seeds = [0]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, STUDY, OPTIONS)
    return folder


def train(folder: Path, listener: Quiet, **more: Any) -> Outcome:
    store = Store.create(folder, STUDY, precision="fp32")
    with join(None, PerUnit(), more.get("storage"), listener.say) as joined:
        place = lambda setting: OnRay(setting, joined)  # noqa: E731
        return run_study(store, STUDY, load_digits(), OPTIONS, listener, elsewhere=place, **more)


def test_a_worker_and_a_node_are_killed(
    cluster: Cluster, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path, "adadelta-b64", "sgd-b128")  # on two nodes, since each has room for one
    monkeypatch.setattr(extensions, "LOADED", [gate.file])

    def kill_both() -> None:
        worker, other = (gate.process(unit) for unit in gate.units)
        node = node_of(cluster, other)
        assert node is not node_of(cluster, worker)
        os.kill(worker, signal.SIGKILL)
        kill_node(cluster, node)

    quiet = Quiet()
    with ThreadPoolExecutor(1) as aside:
        killed = aside.submit(kill_both)
        assert train(tmp_path / "study", quiet) == Outcome(finished=6)
        killed.result()
    add_nodes(cluster, 1)
    assert_same(tmp_path / "study", whole)
    assert {("adadelta-b64", 15), ("sgd-b128", 15)} <= set(quiet.began)
    assert {unit.state for unit in Store.open(tmp_path / "study").summary().units} == {"done"}


def test_workers_that_do_not_see_the_folder(
    cluster: Cluster, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = tmp_path / "blind.py"
    blind.write_text("import hotswap.studies.run as run\nrun.ABOUT = 'nowhere'\n", encoding="utf-8")
    monkeypatch.setattr(extensions, "LOADED", [blind])
    assert train(tmp_path / "study", Quiet(), storage=tmp_path / "storage") == Outcome(finished=6)
    assert_same(tmp_path / "study", whole)
    kept = {path.relative_to(tmp_path / "study") for path in tmp_path.glob("study/checkpoints/*/*")}
    assert kept == {path.relative_to(whole) for path in whole.glob("checkpoints/ducb-*/*-kept.hotswap")}
    assert list((tmp_path / "storage").glob("sgd-b64-*/epoch-000025.hotswap"))


def test_the_command_is_stopped_and_goes_on_without_a_cluster(cluster: Cluster, whole: Path, tmp_path: Path) -> None:
    file, out, gate = tmp_path / "study.toml", tmp_path / "out", Gate(tmp_path, "adadelta-b128")
    file.write_text(TEXT, encoding="utf-8")
    words = ("study", "run", str(file), "--out", str(out), "--on", "ray", "--address", cluster.address)
    with child(hotswap_command("--load", str(gate.file), *words), stderr=subprocess.PIPE) as process:
        gate.process("adadelta-b128")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    run(out, STUDY, OPTIONS)  # the folder is one as any
    assert_same(out, whole)


def test_a_unit_that_fails_is_reported_and_the_others_finish(cluster: Cluster, tmp_path: Path) -> None:
    file, mine, out = tmp_path / "study.toml", tmp_path / "mine.py", tmp_path / "out"
    file.write_text(TEXT.replace("epochs = 25", "epochs = 2"), encoding="utf-8")
    mine.write_text(
        "from hotswap.studies.training import Training\n"
        "train = Training._train\n"
        "def failing(self, epoch, schedule):\n"
        "    if self.unit.id == 'sgd-b64':\n"
        "        raise ValueError('two is too many')\n"
        "    return train(self, epoch, schedule)\n"
        "Training._train = failing\n",
        encoding="utf-8",
    )
    words = ("study", "run", str(file), "--out", str(out), "--on", "ray", "--address", cluster.address)
    done = subprocess.run(
        hotswap_command("--load", str(mine), *words), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "sgd-b64 failed: ValueError: two is too many" in done.stderr
    assert "Traceback" in (out / "running" / "sgd-b64.error").read_text(encoding="utf-8")
    assert [unit.id for unit in Store.open(out).summary().units if unit.state != "done"] == ["sgd-b64"]


def test_a_benchmark_has_the_results_of_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    words = ("bench", "run", "--size", "smoke", "--workload", "logistic_regression", "--method", "adamw")
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "ray"), "--on", "ray"])
    assert "All of it has ended" in done.output, done.output
    here = BenchStore.create(tmp_path / "here", "smoke")
    assert run_bench(here, BenchOptions(workloads=["logistic_regression"], methods=["adamw"]), "cpu", Silent())
    theirs = BenchStore.open(tmp_path / "ray").results()
    assert len(theirs) == 5
    for name, ours in here.results().items():
        assert [p._replace(seconds=0) for p in ours.points] == [p._replace(seconds=0) for p in theirs[name].points]
        assert theirs[name].origin["threads"] == 1


def test_the_benchmark_of_clusters_measures_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    with join(None, PerUnit(), None, print) as joined:
        assert overhead(joined, 3) > 0
        slept = sleepers(joined, tmp_path / "sleepers", 4, 0.01)
    assert (slept.units, slept.workers) == (4, 2)
    kept = stored(tmp_path / "rows", epochs=3, units=2, runs=5)
    assert kept.rows == 3 * 2 * 5
    assert kept.per_second > 0
    assert planning(tmp_path / "planned", 200) > 0


def test_mistakes_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TEXT, encoding="utf-8")
    study = ["study", "run", str(file), "--out", str(tmp_path / "out")]
    bench = ["bench", "run", "--out", str(tmp_path / "out")]
    for words, said in (
        ([*study, "--on", "ray", "--per-unit", "gpu"], "--per-unit gpu: give a name and an amount"),
        ([*study, "--on", "ray", "--jobs", "2"], "--jobs is for processes on this machine"),
        ([*study, "--storage", "x"], "--storage is for a cluster; add --on ray, or leave it out"),
        ([*bench, "--on", "ray", "--per-unit", "gpu"], "--per-unit gpu: give a name"),
        ([*bench, "--on", "ray", "--workload", "imagenet"], "--workload: there is no workload 'imagenet'"),
        ([*bench, "--on", "ray", "--jobs", "2"], "--jobs is for processes on this machine"),
        ([*bench, "--per-unit", "gpu=1"], "--per-unit is for a cluster; add --on ray"),
    ):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, SettingError), done.exception
        assert said in str(done.exception)
        assert list(tmp_path.iterdir()) == [file]
