"""A study that ends as on one machine, though its nodes, its workers and its command are killed twenty times."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hotswap.store.folder import ABOUT
from hotswap.studies import StudySpec
from hotswap.studies.folder import Store
from tests.children import PATIENCE, child, hotswap_command
from tests.studies.test_training import TOML, TOY, Quiet, assert_same, run
from tests.work.nodes import add_nodes, cluster_of, kill_node

KILLS = 20
STUDY: StudySpec = replace(TOY, epochs=2500)


def places(folder: Path) -> list[int]:
    """The processes that train units now, each seen in the middle of one."""
    if not (folder / ABOUT).exists():
        return []
    units = Store.open(folder).summary().units
    return [int(unit.where.rpartition(" ")[2]) for unit in units if ", process" in unit.where]


@pytest.mark.soak
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    run(tmp_path / "whole", STUDY, listener=Quiet())
    dice = random.Random(0)
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(TOML.format(epochs=STUDY.epochs), encoding="utf-8")
    kills: list[str] = []
    with cluster_of(3, joined=False) as cluster:
        words = ("study", "run", str(file), "--out", str(out), "--on", "ray", "--address", cluster.address)
        code = None
        while code != 0:
            with (
                (tmp_path / "said").open("a") as said,
                child(hotswap_command(*words), stdout=said, stderr=subprocess.STDOUT) as process,
            ):
                while process.poll() is None:
                    time.sleep(dice.uniform(0.5, 4.0))
                    if len(kills) >= KILLS or process.poll() is not None or not places(out):
                        continue
                    kills.append(dice.choice(["node", "node", "worker", "command"]))
                    if kills[-1] == "node":
                        kill_node(cluster, dice.choice(sorted(cluster.worker_nodes, key=lambda node: node.node_id)))
                        add_nodes(cluster, 1)
                    elif kills[-1] == "worker":
                        with suppress(ProcessLookupError):
                            os.kill(dice.choice(places(out) or [process.pid]), signal.SIGKILL)
                    else:
                        process.kill()
                code = process.wait(PATIENCE)
            assert code in (0, -signal.SIGKILL), (tmp_path / "said").read_text()
    assert len(kills) == KILLS, "the study ended too early; give it more epochs"
    assert_same(out, tmp_path / "whole")
