"""What Ray carries to nodes that may not have hotswap, or another one: functions that travel as code, not by name.

A function inside a function cannot be imported, so that Ray sends its code along. They import what they need where they
arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["switch", "trial", "unit", "versions"]


def versions() -> Callable[[], dict[str, str]]:
    """A function that says what decides a result on the node where it is called: by package, its version."""

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


def trial() -> Callable[..., tuple[dict[str, str], str]]:
    """A function that tries a node: what it has, and what is wrong with the storage as seen from there."""
    found = versions()

    def tried(expected: dict[str, str], storage: str | None) -> tuple[dict[str, str], str]:
        there, wrong = found(), ""
        if there == expected and storage is not None:
            from hotswap.cluster.storage import Storage
            from hotswap.errors import SettingError

            try:
                Storage.named(storage)
            except SettingError as error:
                wrong = str(error)
        return there, wrong

    return tried


def unit() -> Callable[..., Iterator[tuple[str, Any]]]:
    """The task that a unit becomes; what it is given is in bytes, and read once it is sure that it can be."""
    found = versions()

    def stream(expected: dict[str, str], references: list[Any], packed: bytes) -> Iterator[tuple[str, Any]]:
        import ray

        there = found()
        if there != expected:
            yield "refused", (ray.get_runtime_context().get_node_id(), there)
            return
        from hotswap.cluster.worker import work_on

        yield from work_on(references, packed)

    return stream


def switch() -> type:
    """An actor that tells workers whether to stop."""

    class Switch:
        def __init__(self) -> None:
            self.on = False

        def turn_on(self) -> None:
            self.on = True

        def is_on(self) -> bool:
            return self.on

    return Switch
