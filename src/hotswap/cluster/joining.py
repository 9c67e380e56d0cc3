"""Starting Ray on this machine, or joining a cluster, and trying its nodes before anything is changed."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Before Ray is imported. A task that asks for no GPU is to see none, which is Ray's habit to come; it warns otherwise.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hotswap.cluster import travelling
from hotswap.cluster.placement import PerUnit
from hotswap.cluster.storage import Storage
from hotswap.errors import SettingError, UnsupportedError

__all__ = ["Joined", "join"]

ANSWER = 5.0  # seconds for an address to answer
TRIAL = 120.0  # seconds for the nodes to be tried; on each, a process has to start


class Joined:
    """A cluster that has room for units, with nodes that have the right versions.

    Attributes:
        per_unit: What one unit needs.
        storage: Where checkpoints go, if not to the command.
        expected: The versions of packages that a node must have.
        refused: The ids of nodes that have others.
    """

    def __init__(self, per_unit: PerUnit, storage: Storage | None, say: Callable[[str], None]) -> None:
        self.per_unit, self.storage, self._say = per_unit, storage, say
        self.expected = travelling.versions()()
        self.refused: set[str] = set()
        self._try_nodes()
        switch: Any = ray.remote(num_cpus=0)(travelling.switch())
        self.switch = switch.options(scheduling_strategy=_only_on(ray.get_runtime_context().get_node_id())).remote()

    def room(self) -> int:
        """How many units may run at once, as far as the cluster goes now."""
        return sum(self.per_unit.room(node["Resources"]) for node in self._nodes())

    def refuse(self, node: str, there: dict[str, str]) -> None:
        """Give a node no more units, since it has other versions of packages, and say so."""
        if node in self.refused:
            return
        self.refused.add(node)
        name = next((known["NodeManagerHostname"] for known in _all_nodes() if known["NodeID"] == node), node)
        differ = [
            f"{package} {there[package]}, and this command {version}"
            for package, version in self.expected.items()
            if there[package] != version
        ]
        self._say(f"The node {name} has {'; '.join(differ)}: it gets no units until it has the same.")

    def options(self) -> dict[str, Any]:
        """Of a Ray task that trains a unit."""
        elsewhere = {"ray.io/node-id": f"!in({','.join(sorted(self.refused))})"} if self.refused else None
        return {**self.per_unit.options(), "label_selector": elsewhere, "num_returns": "streaming", "max_retries": 0}

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in _all_nodes() if node["Alive"] and node["NodeID"] not in self.refused]

    def _try_nodes(self) -> None:
        """Raise a SettingError if there is no node for a unit, or if one of them cannot reach the storage."""
        nodes = self._nodes()
        self.per_unit.check(node["Resources"] for node in nodes)
        nodes = [node for node in nodes if self.per_unit.room(node["Resources"])]
        tried: Any = ray.remote(num_cpus=0, max_retries=0)(travelling.trial())
        uri = None if self.storage is None else self.storage.uri
        answers = [
            (node, tried.options(scheduling_strategy=_only_on(node["NodeID"])).remote(self.expected, uri))
            for node in nodes
        ]
        for node, answer in answers:
            name = node["NodeManagerHostname"]
            try:
                there, wrong = ray.get(answer, timeout=TRIAL)
            except ray.exceptions.GetTimeoutError:
                self._say(f"The node {name} has not answered for {TRIAL:.0f} s.")
                continue
            except ray.exceptions.RayError as error:
                self._say(f"The node {name} cannot be used yet: {' '.join(str(error).split())[:200]}")
                continue
            if there != self.expected:
                self.refuse(node["NodeID"], there)
            elif wrong:
                raise SettingError(f"On the node {name}: {wrong}")
        if not self.room():
            wanted = ", ".join(f"{package} {version}" for package, version in self.expected.items())
            raise UnsupportedError(f"No node of the cluster has {wanted}; install the same there as here.")


def _all_nodes() -> list[dict[str, Any]]:
    return ray.nodes()  # type: ignore[no-any-return,no-untyped-call]


def _only_on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


@contextmanager
def join(
    address: str | None, per_unit: PerUnit, storage: str | None, say: Callable[[str], None], **settings: Any
) -> Iterator[Joined]:
    """Join the cluster at an address, or start Ray on this machine if there is none, and leave at the end of the block.

    A program that has called `ray.init` itself stays in its cluster.

    Args:
        address: `auto` or `host:port`; None starts Ray here.
        per_unit: What one unit needs.
        storage: Where workers write checkpoints; None: nowhere, they come back.
        say: Is told of nodes that are not used.
        settings: Of `ray.init`, for Ray that is started here.

    Raises:
        SettingError: Nobody answers, there is no room for a unit, or the storage cannot be used.
        UnsupportedError: No node has the right versions of packages.
    """
    shelf = None if storage is None else Storage.named(storage)
    ours = not ray.is_initialized()
    if ours:
        _connect(address, settings)
    try:
        yield Joined(per_unit, shelf, say)
    finally:
        if ours:
            ray.shutdown()


def _connect(address: str | None, settings: dict[str, Any]) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if address is None:
        ray.init(address="local", include_dashboard=False, **{**quiet, **settings})
        return
    _check_answers(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        token = "Where the cluster asks for a token, set RAY_AUTH_MODE=token, or say --address auto on its head."
        raise SettingError(f"--address {address} cannot be joined ({why}); {_ADVICE} {token}") from error


_ADVICE = (
    "give the address that `ray start --head` printed, on a machine of the cluster, or leave --address out to start "
    "Ray on this machine."
)


def _check_answers(address: str) -> None:
    """Raise a SettingError for an address nobody answers at: Ray itself would go on trying for a minute."""
    if address.startswith("ray://"):
        raise SettingError(
            f"--address {address} is one for Ray's client, which the command cannot use; give the command on a machine "
            "of the cluster with --address auto, or submit it with `ray job submit`."
        )
    known = _current() if address == "auto" else address
    if known is None:
        return  # Ray looks for one, and says at once if there is none
    host, _, port = known.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingError(f"--address {address}: give auto, or host:port, such as 10.0.0.5:6379.")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        place = address if known == address else f"{address}, which is {known}"
        raise SettingError(f"Nobody answers at --address {place} ({error}); {_ADVICE}") from None


def _current() -> str | None:
    """What `auto` stands for, as far as the environment or the last `ray start` on this machine says."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    with suppress(OSError, ValueError):
        known = os.environ.get("RAY_ADDRESS") or note.read_text(encoding="utf-8").strip()
        return known if known and "/" not in known else None
    return None
