"""Walks through tables of losses, for the tests of searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hotswap import Search
from hotswap.states import arrays_of, replaced


def shown(search: Search, walk: Any, losses: Any, expected: Any) -> Any:
    """The walk after a trial, as the optimizer and ensembles show it."""
    return search.observe(walk, losses, expected) if search.needs_slope else search.observe(walk, losses)


def walk_through(
    search: Search,
    losses: Sequence[float],
    before: float,
    proposal: int = 0,
    row: int | None = None,
    expected: Sequence[float] | None = None,
) -> tuple[list[int], int]:
    """The arms a search tries when arm k gives `losses[k]`, and the one it takes: as numbers, as arrays, the same."""
    expected = [0.0] * len(losses) if expected is None else expected
    number = search.begin(proposal, before, arms=len(losses), row=row)
    array = search.begin(np.array([proposal]), np.array([before]), arms=len(losses), row=row)
    tried = []
    while not number.done:
        tried.append(number.arm)
        number = shown(search, number, losses[number.arm], expected[number.arm])
        arm = array.arm.item()
        array = shown(search, array, np.array([losses[arm]]), np.array([expected[arm]]))
        assert {name: field.item() for name, field in arrays_of(array).items()} == arrays_of(number)
    assert search.choose(array).item() == search.choose(number)
    return tried, search.choose(number)


def check_walks(search: Search, cases: list[tuple[list[float], int, list[int], int]], row: int | None = None) -> None:
    """Walks from a loss of 1.0 with losses, proposals, arms tried and arm taken: as numbers, in NumPy, in torch; alone
    and all of them together."""
    for losses, proposal, tried, taken in cases:
        assert walk_through(search, losses, 1.0, proposal, row) == (tried, taken)
    table = np.array([losses for losses, *_ in cases])
    proposals = np.array([proposal for _, proposal, *_ in cases])
    for array in (np.asarray, torch.from_numpy):
        walk = search.begin(array(proposals), array(np.ones(len(cases))), arms=table.shape[1], row=row)
        tried_by_run: list[list[int]] = [[] for _ in cases]
        while not walk.done.all():
            for run, (arm, done) in enumerate(zip(walk.arm.tolist(), walk.done.tolist(), strict=True)):
                tried_by_run[run] += [] if done else [arm]
            walk = search.observe(walk, array(table[np.arange(len(cases)), np.asarray(walk.arm)]))
        assert tried_by_run == [tried for _, _, tried, _ in cases]
        assert search.choose(walk).tolist() == [taken for *_, taken in cases]


def in_blocks(
    search: Search,
    table: torch.Tensor,
    proposals: torch.Tensor,
    sizes: tuple[int, int] = (4, 8),
    row: int | None = None,
    expected: torch.Tensor | None = None,
) -> tuple[list[list[int]], list[int], list[int]]:
    """What each run tries and takes when arms are evaluated in blocks, as ensembles do it, and how many blocks that is.

    A block's losses are shown in order, and one counts only where its arm is that at which the walk stands.
    """
    runs, arms = table.shape
    expected = torch.zeros_like(table) if expected is None else expected
    walk = search.begin(proposals, torch.ones_like(table[:, 0]), arms=arms, row=row)
    tried: list[list[int]] = [[] for _ in range(runs)]
    blocks = torch.zeros_like(proposals)
    size = sizes[0]
    while not walk.done.all():
        blocks += ~walk.done
        foreseen = search.foresee(walk, size)
        assert foreseen.shape == (runs, size)
        assert torch.equal(foreseen[~walk.done, 0], walk.arm[~walk.done])
        for arm in foreseen.T:
            here = ~walk.done & (arm == walk.arm)
            for run in here.nonzero().flatten().tolist():
                tried[run].append(int(arm[run]))
            losses, slopes = (values.gather(1, arm[:, None]).squeeze(1) for values in (table, expected))
            after, own = shown(search, walk, losses, slopes), arrays_of(walk)
            merged = {name: torch.where(here, field, own[name]) for name, field in arrays_of(after).items()}
            walk = replaced(walk, merged)
        size = sizes[1]
    return tried, search.choose(walk).tolist(), blocks.tolist()


def traced(search: Search, table: torch.Tensor, proposals: torch.Tensor, expected: torch.Tensor) -> list[int]:
    """What each run takes, with every function traced as a whole, as ensembles compile it."""

    def advance(walk: Any, losses: torch.Tensor, slopes: torch.Tensor) -> tuple[Any, torch.Tensor]:
        walk = shown(search, walk, losses, slopes)
        return walk, search.foresee(walk, 3)

    torch._dynamo.reset()
    compiled = torch.compile(advance, backend="eager", fullgraph=True)
    walk = search.begin(proposals, torch.ones(len(table), dtype=torch.float64), arms=table.shape[1])
    for _ in range(table.shape[1]):
        walk, foreseen = compiled(
            walk, *(values.gather(1, walk.arm[:, None]).squeeze(1) for values in (table, expected))
        )
        assert foreseen.shape == (len(table), 3)
    assert walk.done.all()
    torch._dynamo.reset()
    chosen: list[int] = search.choose(walk).tolist()
    return chosen
