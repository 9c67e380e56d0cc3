"""Models that change more than their parameters: each step must leave them as one ordinary forward would have."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from hotswap import Backtracking, ClosureError, HotSwap, HotSwapSGD, HotSwapWarning, NoSearch, Search, UnsupportedError


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 6, generator=generator), torch.randint(0, 3, (16,), generator=generator)


def loss_of(*modules: nn.Module) -> Callable[[], Tensor]:
    x, y = data()
    return lambda: cross_entropy(nn.Sequential(*modules)(x), y)


class Momentum(nn.Module):
    """A key encoder that follows inside forward, as in MoCo."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(6, 3)
        self.key = copy.deepcopy(self.query).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
                key.mul_(0.9).add_(query, alpha=0.1)
        return self.query(x) + 0.1 * self.key(x)


@pytest.mark.parametrize("given", ["all", "trained"])
def test_a_forward_that_moves_parameters_which_the_optimizer_does_not_is_refused(given: str) -> None:
    model = Momentum()
    before = copy.deepcopy(model.query.state_dict())
    optimizer = HotSwapSGD((model if given == "all" else model.query).parameters())
    with pytest.raises(
        ClosureError, match=r"parameters that the optimizer does not \(0?\.?key\.weight, .*after the step"
    ):
        optimizer.step(loss_of(model))
    assert all(torch.equal(value, before[name]) for name, value in model.query.state_dict().items())


def test_parameters_that_stay_may_be_changed_between_steps() -> None:
    model = nn.Sequential(nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 3))
    optimizer = HotSwapSGD(model.parameters())
    for _ in range(3):
        optimizer.step(loss_of(model))
        with torch.no_grad():
            model[0].weight.mul_(0.99)


def test_a_frozen_embedding_whose_forward_shortens_its_rows() -> None:
    embedding = nn.Embedding(6, 8, max_norm=0.1).requires_grad_(False)
    model = nn.Sequential(embedding, nn.Linear(8, 3))
    optimizer, words = HotSwapSGD(model.parameters()), torch.arange(6)
    for _ in range(2):
        optimizer.step(lambda: cross_entropy(model(words), words % 3))
        assert embedding.weight.norm(dim=1).tolist() == pytest.approx([0.1] * 6, rel=1e-4)


def test_batch_norm_of_a_frozen_backbone_counts_steps_and_not_trials() -> None:
    backbone = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)).requires_grad_(False)
    head = nn.Linear(8, 3)
    ordinary = copy.deepcopy(backbone)
    optimizer = HotSwapSGD(head.parameters())
    for step in range(1, 5):
        optimizer.step(loss_of(backbone, head))
        ordinary(data()[0])
        assert backbone[1].num_batches_tracked == step
        assert all(map(torch.equal, backbone.buffers(), ordinary.buffers()))


def test_modules_that_the_closure_does_not_call_are_left_alone() -> None:
    model, stranger = nn.Linear(6, 3), nn.BatchNorm1d(6)
    optimizer = HotSwapSGD(model.parameters())
    for count in range(1, 4):
        stranger(data()[0])
        optimizer.step(loss_of(model))
        assert stranger.num_batches_tracked == count


def test_graphs_from_before_the_step_through_batch_norm_elsewhere_in_the_model() -> None:
    """A GAN's loop: what the generator made is used in both steps."""
    both = nn.ModuleDict(
        {
            "G": nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6)),
            "D": nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)),
        }
    )
    generator, optimizer = torch.optim.Adam(both["G"].parameters()), HotSwapSGD(both["D"].parameters())
    ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
    for _ in range(3):
        real, fake = torch.randn(16, 6), both["G"](torch.randn(16, 4))
        optimizer.zero_grad()
        optimizer.step(
            lambda real=real, fake=fake: (
                binary_cross_entropy_with_logits(both["D"](real), ones)
                + binary_cross_entropy_with_logits(both["D"](fake.detach()), zeros)
            )
        )
        generator.zero_grad()
        binary_cross_entropy_with_logits(both["D"](fake), ones).backward()
        generator.step()
    assert both["G"][1].num_batches_tracked == 3


class SizedLater(nn.Module):
    """Like observers in quantization-aware training, which get their size in the first forward."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        if self.seen.numel() == 0:
            self.seen.resize_(x.shape[1]).zero_()
        self.seen += 1
        return x


@pytest.mark.parametrize("start", [0, 1])
def test_a_buffer_that_gets_its_size_in_the_forward(start: int) -> None:
    model = nn.Sequential(SizedLater(), nn.Linear(6, 3))
    if start:  # one that would fit any size
        model[0].seen = torch.zeros(1)
        model[0].forward = lambda x, m=model[0]: (m.seen.resize_(6).fill_(m.seen[0] + 1), x)[1]
    optimizer = HotSwapSGD(model.parameters())
    for step in range(1, 4):
        optimizer.step(loss_of(model))
        assert torch.equal(model[0].seen, torch.full((6,), float(step)))


def test_a_buffer_that_is_a_parameter_too_does_not_hold_it_back() -> None:
    model = nn.Linear(6, 3)
    model.register_buffer("view", model.weight.detach())
    before = model.weight.detach().clone()
    HotSwapSGD(model.parameters()).step(loss_of(model))
    assert not torch.equal(model.weight, before)
    assert torch.equal(model.weight, model.get_buffer("view"))


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_buffer_in_memory_that_nobody_may_write_to(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.ones((4, 6), dtype=np.float32))
    model = nn.Linear(6, 3)
    model.register_buffer("table", torch.from_numpy(np.load(tmp_path / "table.npy", mmap_mode="r")))
    optimizer = HotSwapSGD(model.parameters())
    optimizer.step(loss_of(model))  # it used to end the process
    assert optimizer.last_step is not None


def test_what_a_parametrization_has_cached_is_not_used_in_trials() -> None:
    model = nn.Sequential(weight_norm(nn.Linear(6, 8)), nn.Tanh(), weight_norm(nn.Linear(8, 3)))
    optimizer, loss = HotSwapSGD(model.parameters()), loss_of(model)
    for _ in range(3):
        with parametrize.cached():
            optimizer.step(loss)
        assert optimizer.last_step.loss_after == pytest.approx(loss().item(), rel=1e-6)


def test_random_numbers_between_gradient_passes_are_warned_of() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    optimizer, y = HotSwapSGD(model.parameters()), data()[1]

    def passes(batches: list[Tensor], *, draw: bool) -> None:
        optimizer.zero_grad()
        for x in batches:
            if draw:
                torch.rand(1)
            with optimizer.gradient_pass():
                cross_entropy(model(x), y).backward()

    passes([torch.randn(16, 6)] * 2, draw=False)
    with pytest.warns(HotSwapWarning, match="drawn between two gradient passes .* use hotswap.accumulate"):
        passes([torch.randn(16, 6)] * 2, draw=True)


def test_parameters_can_be_exchanged_after_a_step() -> None:
    """torch exchanges tensors only where nobody holds a weak reference to them."""
    model = nn.Linear(6, 3)
    HotSwapSGD(model.parameters()).step(loss_of(model))
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert model.weight.dtype is torch.float64


def test_a_compiled_training_function_learns_like_any_other() -> None:
    model = nn.Linear(6, 3)
    optimizer, loss = HotSwapSGD(model.parameters()), loss_of(model)
    train = torch.compile(lambda: optimizer.step(loss), backend="eager")
    starts = []
    for _ in range(5):
        train()
        starts.append(optimizer.last_step.start)
    assert starts == [0, 1, 2, 3, 4]


class Around(torch.optim.Optimizer):
    """As Lookahead and its like are."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups, inner.defaults)

    def step(self, closure: Any = None) -> None:
        self.inner.step()


def test_a_base_around_another_optimizer_is_refused() -> None:
    base = Around(torch.optim.Adam(nn.Linear(6, 3).parameters()))
    with pytest.raises(UnsupportedError, match=r"Around is around another optimizer, Adam, .*the inner one"):
        HotSwap(base)


@pytest.mark.parametrize("search", [Backtracking(), NoSearch()])
@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_hook_on_the_base_is_refused_and_one_on_the_whole_runs_once_a_step(kind: str, search: Search) -> None:
    model, runs = nn.Linear(6, 3), []
    optimizer = HotSwap(torch.optim.Adam(model.parameters()), search=search)
    getattr(optimizer, f"register_step_{kind}_hook")(lambda *_: runs.append(1))
    optimizer.step(loss_of(model))
    assert runs == [1]
    getattr(optimizer.base, f"register_step_{kind}_hook")(lambda *_: None)
    with pytest.raises(UnsupportedError, match=r"Adam, has a step hook, .*register it on the hot-swapped optimizer"):
        optimizer.step(loss_of(model))


def test_a_loss_of_zero_says_nothing_about_the_closure() -> None:
    """A hinge that is satisfied stays so, wherever weight decay takes the parameters; warnings are errors here."""
    model = nn.Linear(6, 1)
    optimizer = HotSwapSGD(model.parameters(), weight_decay=0.5)
    optimizer.step(lambda: 0 * model(data()[0]).sum())
    assert optimizer.last_step.arm is None


def test_a_step_inside_of_its_own_closure_is_refused() -> None:
    model = nn.Linear(6, 3)
    optimizer, loss = HotSwapSGD(model.parameters()), loss_of(model)
    with pytest.raises(ClosureError, match="from inside of its own closure"):
        optimizer.step(lambda: optimizer.step(loss))
    optimizer.step(loss)  # it is not stuck


def test_a_penalty_on_gradients_says_where_they_are_enabled() -> None:
    model, (x, _) = nn.Linear(6, 3), data()

    def penalty() -> Tensor:
        points = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(points).square().sum(), points, create_graph=torch.is_grad_enabled())
        return slope.square().mean()

    with pytest.raises(ClosureError, match=r"trials run without: .*with torch\.enable_grad\(\)"):
        HotSwapSGD(model.parameters()).step(penalty)

    def enabled() -> Tensor:
        with torch.enable_grad():
            return penalty()

    assert HotSwapSGD(model.parameters()).step(enabled) > 0


class Pair(Tensor):
    """Made of two others, as quantized weights are: it has no memory of its own."""

    parts: tuple[Tensor, Tensor]

    @staticmethod
    def __new__(cls, first: Tensor, second: Tensor) -> Pair:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)
        made.parts = first, second
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def whole(value: Any) -> Any:
            return value.parts[0] + value.parts[1] if isinstance(value, Pair) else value

        if func is torch.ops.aten.detach.default:
            return Pair(*args[0].parts)
        return func(*map(whole, args), **(kwargs or {}))


def test_a_frozen_weight_without_memory_of_its_own() -> None:
    frozen = nn.Linear(6, 6, bias=False)
    frozen.weight = nn.Parameter(Pair(torch.eye(6), torch.zeros(6, 6)), requires_grad=False)
    model = nn.Sequential(frozen, nn.BatchNorm1d(6), nn.Linear(6, 3))
    optimizer = HotSwapSGD(model.parameters())
    for step in range(1, 4):
        optimizer.step(loss_of(model))
        assert model[1].num_batches_tracked == step
