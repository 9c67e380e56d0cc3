"""What is compiled on a GPU is compiled once, whatever the sizes, and the same way in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from hotswap.ensemble import Mlp, kernels
from hotswap.ensemble.mlp import moved_inputs
from hotswap.networks import Activation


class Compiled:
    """Stands in for the compiler, and remembers the sizes of the inputs that each function was compiled with."""

    def __init__(self) -> None:
        self.sizes: dict[str, list[list[int]]] = {}
        self.kernels: dict[Callable[..., Any], Callable[..., Any]] = {}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            sizes = {int(size) for tensor in inputs if isinstance(tensor, Tensor) for size in tensor.shape}
            self.sizes.setdefault(function.__name__, []).append(sorted(sizes))
            return graph.forward

        return self.kernels.setdefault(function, torch.compile(function, backend=backend))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiled]:
    torch._dynamo.reset()
    stand_in = Compiled()
    monkeypatch.setattr(kernels, "_has_compiler", lambda device: True)
    monkeypatch.setattr(kernels, "_compiled", stand_in)
    monkeypatch.setattr(kernels, "_compiled_with", set())
    yield stand_in
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "order",
    [
        [(3, 64, 4), (3, 64, 8), (3, 128, 4), (12, 32, 8)],
        [(12, 1024, 8), (48, 48, 48), (64, 64, 64), (3, 64, 4)],
    ],
)
def test_one_compilation_serves_all_sizes_and_does_not_depend_on_the_first(
    order: list[tuple[int, int, int]], compiled: Compiled
) -> None:
    for runs, batch, arms in order:
        stay, shift = torch.randn(2, runs, arms, batch, 12)
        scores, rate, y = stay[:, 0].contiguous(), torch.rand(runs, arms, 1, 1), torch.randint(10, (batch,))
        found = kernels.losses_and_slopes(scores, y, 10)
        torch.testing.assert_close(found, kernels.loss_and_slope(scores, y, 10))
        moved = kernels.losses_of_moves(stay, rate, shift, y, 10)
        torch.testing.assert_close(moved, kernels.moved_loss(stay, rate, shift, y, 10))
    assert compiled.sizes == {"loss_and_slope": [[12, 48, 64]], "moved_loss": [[1, 3, 4, 12, 64]]}


def test_a_network_of_one_layer_shares_its_scores_among_the_arms(compiled: Compiled) -> None:
    for runs, batch, arms in ((5, 32, 4), (3, 64, 8)):
        stay, shift = torch.randn(2, runs, 1, batch, 12)
        rate, y = torch.rand(runs, arms, 1, 1), torch.randint(10, (batch,))
        moved = kernels.losses_of_moves(stay, rate, shift, y, 10)
        torch.testing.assert_close(moved, kernels.moved_loss(stay, rate, shift, y, 10))
    assert compiled.sizes == {"moved_loss": [[1, 3, 4, 12, 64]]}


def test_the_compiler_chooses_by_rule_and_not_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: given.append(options) or function)
    kernels._compiled.__wrapped__(lambda: None)
    assert given == [{"options": {"deterministic": True}}]


def test_the_compiler_knows_the_option() -> None:
    torch.compile(lambda: None, options={"deterministic": True})


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("unit", ["sigmoid", "tanh", "relu"])
def test_what_enters_a_layer_is_the_same_by_either_way(number: int, unit: Activation) -> None:
    """In memory that is kept, as on a CPU, and as the function that a GPU compiles."""
    model, units = Mlp((6, 9, 7, 3), unit), (9, 7)[number - 1]
    stay, shift = (torch.randn(2, 3, 5, units, dtype=torch.float64) for _ in range(2))
    rate, axis = torch.rand(2, 3, 1, 1, dtype=torch.float64), 1 if number == 1 else 3
    kept = model._enter_moved(stay, rate, shift, number)
    turned = (each.movedim(-1, axis) for each in (stay, rate, shift))
    made = model._flattened(moved_inputs(*turned, model.shapes[number][1], axis, unit), number)
    torch.testing.assert_close(made, kept)
    assert made.stride() == kept.stride()
    assert torch.equal(made[..., units], torch.ones(2, 15, dtype=torch.float64))
