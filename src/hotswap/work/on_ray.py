"""Units on a Ray cluster: every unit is a task, and Ray places it, and does it again where a process or a node dies."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Before Ray is imported. A task that asks for no GPU is to see none, which is Ray's habit to come; it warns otherwise.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hotswap.errors import SettingError, UnsupportedError
from hotswap.work.here import attempt
from hotswap.work.loop import Setting, UnitError, WorkerDiedError
from hotswap.work.per_unit import PerUnit

__all__ = ["Cluster", "OnRay", "join"]

ANSWER = 5.0  # seconds for an address to answer
TRIAL = 120.0  # seconds for the nodes to be tried; on each, a process has to start
RETRIES = 20  # so often Ray does a unit again whose process or node has died
MOST = 2000  # units that are under way at once


class Cluster:
    """A cluster that has room for units, with nodes that have the right versions and see a folder.

    Attributes:
        per_unit: The resources that one unit needs.
        expected: The versions of packages that a node must have.
        refused: The ids of nodes that have others: they get no units.
    """

    def __init__(self, per_unit: PerUnit, folder: Path | None, say: Callable[[str], None]) -> None:
        self.per_unit, self._say = per_unit, say
        self.expected = _versions()()
        self.refused: set[str] = set()
        nodes = [node for node in self._nodes() if per_unit.room(node["Resources"])]
        per_unit.check(node["Resources"] for node in self._nodes())
        self._try(nodes, folder)

    def room(self) -> int:
        """How many units run at once, as far as the cluster goes now."""
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
        """The options of a Ray task that does a unit."""
        elsewhere = {"ray.io/node-id": f"!in({','.join(sorted(self.refused))})"} if self.refused else None
        return {**self.per_unit.options(), "label_selector": elsewhere, "max_retries": RETRIES}

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in _all_nodes() if node["Alive"] and node["NodeID"] not in self.refused]

    def _try(self, nodes: list[dict[str, Any]], folder: Path | None) -> None:
        """Raise an error if no node can do units, or if one of them does not see the folder."""
        trial: Any = ray.remote(num_cpus=0, max_retries=0)(_trial())
        token = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            token = tempfile.NamedTemporaryFile(dir=folder, prefix=".seen-")  # noqa: SIM115  # deleted with this call
        answers = [
            (node, trial.options(scheduling_strategy=_only_on(node["NodeID"])).remote(token and token.name))
            for node in nodes
        ]
        silent = []
        for node, answer in answers:
            name = node["NodeManagerHostname"]
            try:
                there, sees = ray.get(answer, timeout=TRIAL)
            except GetTimeoutError:
                silent.append(f"{name} has not answered for {TRIAL:.0f} s")
                continue
            except RayError as error:
                silent.append(f"{name} has died ({_line(error)})")
                continue
            if there != self.expected:
                self.refuse(node["NodeID"], there)
            elif not sees:
                raise SettingError(
                    f"The node {name} does not see --storage {folder}; name a folder that all nodes may write to."
                )
        if token is not None:
            token.close()
        for text in silent:
            self._say(f"A node cannot be used yet: {text}.")
        if self.refused and not self.room():
            wanted = ", ".join(f"{package} {version}" for package, version in self.expected.items())
            raise UnsupportedError(f"No node of the cluster has {wanted}; install the same there as here.")
        if silent and len(silent) == len(nodes) - len(self.refused):
            raise UnsupportedError(
                f"No node of the cluster can be used: {'; '.join(silent)}. See whether Ray runs there (`ray status`), "
                "and give the same command again."
            )


class OnRay:
    """Does units on a cluster. See `Place`."""

    def __init__(self, setting: Setting, cluster: Cluster) -> None:
        self._cluster = cluster
        self._setting = ray.put(cloudpickle.dumps(setting))  # type: ignore[no-untyped-call]  # sent to each node once
        self._key, self._task = setting.key, ray.remote(_unit())
        self._threads = ThreadPoolExecutor(MOST)
        self._under_way: set[Any] = set()
        self._stopping = False

    def room(self) -> int:
        """As many units as run at once, and some to go on with: all at once would take memory for nothing."""
        return min(2 * self._cluster.room() + 2, MOST)

    def submit(self, payload: Any) -> Future[Any]:
        """See `Place`."""
        return self._threads.submit(self._do, cloudpickle.dumps(payload))  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """See `Place`. Units are given up, and go on from their last checkpoints."""
        self._stopping = True
        for task in tuple(self._under_way):
            with suppress(RayError):
                ray.cancel(task, force=True)

    def _do(self, packed: bytes) -> Any:
        while not self._asked():
            task = self._task.options(**self._cluster.options()).remote(
                self._cluster.expected, self._key, self._setting, packed
            )
            self._under_way.add(task)
            if self._asked():
                self.stop()  # which may have looked before this task was there
            try:
                refused, answer = ray.get(task)
            except TaskCancelledError:
                return None
            except RayError as error:
                if self._asked():
                    return None
                failed = UnitError if isinstance(error, RayTaskError) else WorkerDiedError
                raise failed(_line(error), str(error)) from None
            finally:
                self._under_way.discard(task)
            if refused is not None:
                self._cluster.refuse(refused, answer)
                continue
            raised, result = cloudpickle.loads(answer)
            if raised is not None:
                raise raised
            return result
        return None

    def _asked(self) -> bool:
        return self._stopping


_KNOWN: dict[str, Setting] = {}


def do_packed(key: str, setting: bytes, packed: bytes) -> bytes:
    """Do a unit in a process of Ray's: what `attempt` gives, in bytes."""
    if key not in _KNOWN:
        _KNOWN.clear()
        known = cloudpickle.loads(setting)
        known.prepare()
        _KNOWN[key] = known
    result = attempt(_KNOWN[key], cloudpickle.loads(packed), lambda: False)
    done: bytes = cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
    return done


# Functions that travel as code, not by name, since a node may not have hotswap, or another one: a function inside a
# function cannot be imported. They import what they need where they arrive.


def _versions() -> Callable[[], dict[str, str]]:
    def found() -> dict[str, str]:
        from importlib import metadata

        try:
            from hotswap._version import __version__ as ours
        except ImportError:
            ours = "none"
        try:
            torch = metadata.version("torch").partition("+")[0]  # for which GPUs it was built makes no difference
        except metadata.PackageNotFoundError:
            torch = "none"
        return {"hotswap": ours, "torch": torch}

    return found


def _trial() -> Callable[[str | None], tuple[dict[str, str], bool]]:
    found = _versions()

    def tried(token: str | None) -> tuple[dict[str, str], bool]:
        import os

        sees = token is None or (os.access(os.path.dirname(token), os.W_OK) and os.path.exists(token))
        return found(), sees

    return tried


def _unit() -> Callable[[dict[str, str], str, bytes, bytes], tuple[str | None, Any]]:
    found = _versions()

    def unit(expected: dict[str, str], key: str, setting: bytes, packed: bytes) -> tuple[str | None, Any]:
        import ray

        there = found()
        if there != expected:
            return ray.get_runtime_context().get_node_id(), there
        from hotswap.work.on_ray import do_packed

        return None, do_packed(key, setting, packed)

    return unit


def _line(error: BaseException) -> str:
    """An error in one line, with the first that Ray says of its cause."""
    cause = getattr(error, "cause", None)
    error = cause if isinstance(cause, BaseException) else error
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _all_nodes() -> list[dict[str, Any]]:
    return ray.nodes()  # type: ignore[no-any-return,no-untyped-call]


def _only_on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


@contextmanager
def join(
    address: str | None, per_unit: PerUnit, folder: Path | None, say: Callable[[str], None], **settings: Any
) -> Iterator[Cluster]:
    """Join the cluster at an address, or start Ray on this machine if there is none, and leave at the end of the block.

    A program that has called `ray.init` itself stays in its cluster.

    Args:
        address: `auto` or `host:port`; None starts Ray here.
        per_unit: The resources that one unit needs.
        folder: The folder in which all workers must write checkpoints, if there is one.
        say: Is told of nodes that are not used.
        settings: The arguments of `ray.init`, for Ray that is started here.

    Raises:
        SettingError: Nobody answers, there is no room for a unit, or a node does not see the folder.
        UnsupportedError: No node can be used, or none has the right versions of packages.
    """
    ours = not ray.is_initialized()
    if ours:
        _connect(address, settings)
    try:
        yield Cluster(per_unit, folder, say)
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
    """The address for `auto`, from the environment or the last `ray start` on this machine; None if neither has one."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    with suppress(OSError, ValueError):
        known = os.environ.get("RAY_ADDRESS") or note.read_text(encoding="utf-8").strip()
        return known if known and "/" not in known else None
    return None
