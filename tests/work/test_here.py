"""Units in this process and in others of this machine, which are killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hotswap.work import Here, InThisProcess, Outcome, Setting, Unit, WorkerDiedError, do_all
from tests.children import PATIENCE, child
from tests.work.units import Notes, obey


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/status").exists() and "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_units_follow_from_others_and_some_are_not_ours(tmp_path: Path) -> None:
    notes, follow = Notes(taken={"theirs"}), [[], [Unit("more", ("", ""))], []]
    units = [Unit(name, ("", "")) for name in ("a", "theirs", "finished since", "b")]
    outcome = do_all(units, InThisProcess(obey, 3), notes, more=lambda: follow.pop(0) if follow else [])
    assert outcome == Outcome(finished=3, left=1)
    assert list(notes.results.items()) == [("a", 30), ("b", 30), ("more", 30)]
    assert notes.said == ["Unit theirs is being trained by process 7."]
    assert not notes.held


def test_in_this_process_an_error_is_raised_and_lets_go() -> None:
    notes = Notes()
    with pytest.raises(ValueError, match="three is too many"):
        do_all([Unit("a", ("raise", ""))], InThisProcess(obey, 3), notes)


def test_processes_that_die_are_replaced(tmp_path: Path) -> None:
    orders = {"dies once": "die once", "dies": "die", "raises": "raise", "well": "", "also well": ""}
    units = [Unit(name, (order, str(tmp_path / name))) for name, order in orders.items()]
    notes = Notes()
    with Here(Setting(obey, 3), 2) as here:
        outcome = do_all(units, here, notes)
    assert notes.results == dict.fromkeys(("dies once", "well", "also well"), 30)
    assert outcome.failed["raises"] == "ValueError: three is too many\nfor this one"
    assert "was killed 3 times" in outcome.failed["dies"]
    assert isinstance(notes.errors["dies"], WorkerDiedError)
    assert "Traceback" in notes.errors["raises"].whole


def test_a_process_that_is_spent_is_replaced(tmp_path: Path) -> None:
    with Here(Setting(pid, None), 1, is_spent=lambda result: result[1] == "spent") as here:
        found = [here.submit(payload).result() for payload in ("", "spent", "")]
    assert found[0][0] == found[1][0] != found[2][0]


def pid(shared: object, payload: str, stopping: object) -> tuple[int, str]:
    return os.getpid(), payload


def test_stopping_ends_what_is_under_way(tmp_path: Path) -> None:
    notes, file = Notes(), tmp_path / "waits"
    units = [Unit("waits", ("wait", str(file))), Unit("never begins", ("", ""))]
    with Here(Setting(obey, 3), 1) as here:
        outcome = do_all(units, here, notes, asked_to_stop=file.exists)
    assert outcome == Outcome(left=2)
    assert notes.ended == ["waits"]
    wait_until_gone(int(file.read_text()))


COMMAND = """
import sys
from hotswap.work import Here, Setting, Unit, do_all
from tests.work.units import Notes, obey
with Here(Setting(obey, 3), 1) as here:
    do_all([Unit("waits", ("wait", sys.argv[1]))], here, Notes())
"""


def test_processes_end_with_the_command_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "waits"
    with child([sys.executable, "-c", COMMAND, str(file)]) as process:
        while not file.exists() or not file.read_text():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    wait_until_gone(int(file.read_text()))
