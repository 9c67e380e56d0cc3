"""Addresses that cannot be meant, and those nobody answers at: a sentence at once, and no Ray is started."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
import ray
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.cluster import PerUnit
from hotswap.cluster.joining import join
from hotswap.errors import SettingError, StudyError
from hotswap.studies.storage.locks import acquire, release
from hotswap.studies.storage.one_writer import check_unwritten
from tests.studies.running.test_train import TOML


@pytest.fixture
def nobody() -> str:
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{port.getsockname()[1]}"


def refusal(address: str) -> str:
    with pytest.raises(SettingError) as caught, join(address, PerUnit(), None, print):
        pass
    assert not ray.is_initialized()
    return str(caught.value)


def test_nobody_answers(nobody: str) -> None:
    assert refusal(nobody).startswith(f"Nobody answers at --address {nobody} (")


def test_auto_after_a_cluster_that_is_gone(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(nobody)
    assert refusal("auto").startswith(f"Nobody answers at --address auto, which is {nobody} (")


def test_addresses_that_are_none() -> None:
    assert refusal("cluster").startswith("--address cluster: give auto, or host:port, such as 10.0.0.5:6379.")
    assert refusal("10.0.0.5:6379x").startswith("--address 10.0.0.5:6379x: give auto")
    assert refusal("ray://head:10001").startswith("--address ray://head:10001 is one for Ray's client, which")


def test_nothing_is_changed(nobody: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TOML.format(epochs=2), encoding="utf-8")
    study = ["study", "run", str(file), "--out", str(tmp_path / "out"), "--on", "ray"]
    bench = ["bench", "run", "--out", str(tmp_path / "out"), "--on", "ray"]
    for words in (
        [*study, "--address", nobody],
        [*study, "--per-unit", "gpu"],
        [*study, "--storage", str(file / "below")],
        [*bench, "--address", nobody],
        [*bench, "--per-unit", "gpu"],
        [*bench, "--workload", "imagenet"],
        [*bench, "--jobs", "2"],
    ):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, SettingError)
        assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study", "run", "paper", "--storage", "x"], "--storage is for studies on a cluster; add --on ray"),
        (["bench", "run", "--per-unit", "gpu=1"], "--per-unit is for benchmarks on a cluster; add --on ray"),
        (["bench", "run", "--address", "auto"], "--address is for benchmarks on a cluster; add --on ray"),
    ],
)
def test_what_is_for_clusters_goes_with_one(tmp_path: Path, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert str(done.exception).startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".keeper.lock", "sgd-b64.lock"])
def test_a_folder_that_another_process_writes_to(tmp_path: Path, name: str) -> None:
    check_unwritten(tmp_path / "new")
    lock = acquire(tmp_path / "units" / name, 0.0)
    assert lock is not None
    sentence = r"is being written to by process \d+, and work on a cluster has one writer"
    try:
        for words in (["study", "run", "paper"], ["bench", "run"]):
            done = CliRunner().invoke(app, [*words, "--on", "ray", "--out", str(tmp_path)])
            assert isinstance(done.exception, StudyError)
            assert re.search(sentence, str(done.exception))
    finally:
        release(lock)
    check_unwritten(tmp_path)
    assert not (tmp_path / "ledger.sqlite").exists()
