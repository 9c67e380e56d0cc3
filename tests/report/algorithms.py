"""Algorithms that exist in these tests only: one with settings and a measure of its own, one that chooses its rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look
from hotswap.studies.settings import POSITIVE, SHARE, several
from tests.report.made_up import row

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies import RunSpec


class Untrained(Family):
    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Nadam(Untrained):
    lr: tuple[float, ...] = several(POSITIVE, (0.1, 0.01), help="rates", short="lr")
    decay1: tuple[float, ...] = several(SHARE, (0.9, 0.8), help="the first decay", short="d")

    label: ClassVar[str] = "NAdam"
    look: ClassVar[Look] = Look("#009E73", "#4cc9a0", "diamond", filled=False, dashes="dashed")
    measures: ClassVar[tuple[str, ...]] = ("lanes",)


@dataclass(frozen=True, kw_only=True)
class Greedy(Untrained):
    label: ClassVar[str] = "Greedy"
    look: ClassVar[Look] = Look("#CC79A7", marker="square", layer=3)
    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials")

    def arms(self) -> tuple[float, ...]:
        return (1.0, 0.1)


@contextmanager
def registered(**kinds: type[Family]) -> Iterator[None]:
    """Known for as long as this lasts."""
    for name, kind in kinds.items():
        ALGORITHMS.register(name)(kind)
    try:
        yield
    finally:
        for name in kinds:
            del ALGORITHMS._known[name]


def further_rows() -> list[dict[str, Any]]:
    """Rows of `nadam`, with a setting and a measure of its own, and of `greedy`, at the epochs of a whole study."""
    rows = []
    for epoch in (10, 200, 500):
        for batch in (64, 128):
            for seed in (0, 1):
                rows += [
                    row("nadam", batch, seed, epoch, run=f"nadam-b{batch}-lr{lr}-d{decay}-s{seed}", lr=lr, decay1=decay,
                        train_nll=decay * lr * batch / epoch, test_error=0.021 + 0.01 * lr, lanes=epoch + seed + 0.5)
                    for lr in (0.1, 0.01) for decay in (0.9, 0.8)
                ]  # fmt: skip
                rows.append(row("greedy", batch, seed, epoch, trials=2.0, train_nll=1e-3 / epoch, test_error=0.019))
    return rows
