"""Addresses that cannot be meant, and those nobody answers at: a sentence at once, and no Ray is started."""

from __future__ import annotations

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
    words = ["study", "run", str(file), "--out", str(tmp_path / "out"), "--on", "ray"]
    for more in (["--address", nobody], ["--per-unit", "gpu"], ["--storage", str(file / "below")]):
        done = CliRunner().invoke(app, [*words, *more])
        assert isinstance(done.exception, SettingError)
        assert list(tmp_path.iterdir()) == [file]


def test_what_is_for_clusters_goes_with_one(tmp_path: Path) -> None:
    words = ["study", "run", "paper", "--out", str(tmp_path / "out"), "--storage", str(tmp_path)]
    assert str(CliRunner().invoke(app, words).exception).startswith(
        "--storage is for studies on a cluster; add --on ray"
    )


@pytest.mark.parametrize("name", [".keeper.lock", "sgd-b64.lock"])
def test_a_folder_that_another_process_writes_to(tmp_path: Path, name: str) -> None:
    check_unwritten(tmp_path / "new")
    lock = acquire(tmp_path / "units" / name, 0.0)
    assert lock is not None
    try:
        with pytest.raises(StudyError, match=r"is being written to by process \d+, and work on a cluster has one"):
            check_unwritten(tmp_path)
    finally:
        release(lock)
    check_unwritten(tmp_path)
