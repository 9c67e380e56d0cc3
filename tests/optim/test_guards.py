"""A step leaves random numbers and buffers as one ordinary forward would, and its trials share them."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import HotSwap, HotSwapSGD
from hotswap.errors import UnsupportedError
from hotswap.optim.guards import modules
from tests.optim.helpers import batches

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def noisy(device: str = "cpu") -> nn.Sequential:
    """Dropout and batch norm, with and without parameters of its own."""
    torch.manual_seed(0)
    parts = [nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(16, affine=False)]
    return nn.Sequential(*parts, nn.Linear(16, 3)).to(device)


def optimizers(net: nn.Module) -> dict[str, HotSwap]:
    return {
        "sgd": HotSwapSGD(net.parameters()),
        "adam": HotSwap(torch.optim.Adam(net.parameters())),
        "exact": HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [1.0, 0.1, 0.01], "momentum": [0.0, 0.9]}),
    }


class Masks(nn.Module):
    """Remembers the masks that dropout drew."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.nn.functional.dropout(torch.ones_like(x))
        self.seen.append(mask.detach().clone())
        return x * mask


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_all_evaluations_of_a_step_see_the_same_masks(base: str, device: str) -> None:
    torch.manual_seed(0)
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3)).to(device)
    optimizer = optimizers(net)[base]
    steps = []
    for x, y in batches(4):
        masks.seen.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x.to(device)), y.to(device)))
        assert len(masks.seen) > 1
        assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)
        steps.append(masks.seen[0])
    assert not any(torch.equal(a, b) for a, b in pairwise(steps))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_generators_and_buffers_end_where_one_forward_leaves_them(base: str, device: str) -> None:
    net, twin = noisy(device), noisy(device)
    optimizer = optimizers(net)[base]
    torch.manual_seed(7)
    for x, y in [(x.to(device), y.to(device)) for x, y in batches(5)]:
        twin.load_state_dict(net.state_dict())
        state = torch.get_rng_state(), torch.cuda.get_rng_state() if device == "cuda" else None
        twin(x)  # one ordinary forward, at the start point
        expected = torch.rand(3), torch.rand(3, device=device)
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1])
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert optimizer.last_step is not None
        assert optimizer.last_step.trials
        for (name, ours), theirs in zip(net.named_buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, theirs), name
        assert torch.equal(torch.rand(3), expected[0])
        assert torch.equal(torch.rand(3, device=device), expected[1])
    assert net.training


class Counting(nn.Module):
    """Puts a new tensor in a buffer's place at every forward, and lets it decide the output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.calls.item())
        self.calls = self.calls + 1
        return self.linear(x) * (1 + self.calls)


def test_a_buffer_that_is_replaced_and_that_matters() -> None:
    net = Counting()
    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3)):
        net.seen.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert set(net.seen) == {float(number)}
        assert net.calls.item() == number + 1


def test_a_module_without_parameters_of_ours_is_named() -> None:
    first, second = noisy(), nn.BatchNorm1d(3, affine=False)
    optimizer = HotSwapSGD(first.parameters(), module=second)
    (x, y), *_ = batches(1)
    for _ in range(3):
        optimizer.step(lambda: cross_entropy(second(first(x)), y))
    assert second.num_batches_tracked == 3
    assert first[1].num_batches_tracked == 3
    with pytest.raises(hotswap.SettingError, match=r"HotSwapSGD\(module=3\): module must be a torch.nn.Module"):
        HotSwapSGD(first.parameters(), module=3)  # type: ignore[arg-type]


def test_modules_are_found_around_and_inside_and_when_parameters_come_later() -> None:
    inner, outer = noisy(), nn.Sequential(nn.BatchNorm1d(5))
    outer.append(inner)
    late = nn.Sequential(nn.BatchNorm1d(3))
    optimizer = HotSwapSGD(inner[5].parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(outer(x), y))
    assert outer[0].num_batches_tracked == inner[4].num_batches_tracked == 1
    optimizer.add_param_group({"params": list(late.parameters())})
    optimizer.step(lambda: cross_entropy(late(outer.forward(x)), y))
    assert outer[0].num_batches_tracked == 2
    assert late[0].num_batches_tracked == 1


@pytest.mark.parametrize("way", ["sequential", "attribute", "wrapper of a wrapper"])
def test_a_wrapper_built_after_the_first_step_is_found(way: str) -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    norm, outer = nn.BatchNorm1d(5), nn.Module()
    if way == "attribute":
        outer.inner = net
    else:
        outer.inner = nn.Sequential(net)
    outer.norm = norm
    for _ in range(3):
        optimizer.step(lambda: cross_entropy(outer.inner(norm(x)), y))
    if way == "wrapper of a wrapper":
        around = nn.Sequential(nn.BatchNorm1d(5, affine=False), outer)
        optimizer.step(lambda: cross_entropy(outer.inner(norm(around[0](x))), y))
        assert around[0].num_batches_tracked == 1
    assert norm.num_batches_tracked == 3 + (way == "wrapper of a wrapper")
    assert net[1].num_batches_tracked == 4 + (way == "wrapper of a wrapper")


def test_a_trial_closure_is_guarded_too() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), (other_x, other_y) = batches(2)
    optimizer.step(lambda: cross_entropy(net(x), y), trial_closure=lambda: cross_entropy(net(other_x), other_y))
    assert net[1].num_batches_tracked == 1
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    random_state = torch.get_rng_state()
    optimizer.step(trial_closure=lambda: cross_entropy(net(x), y), loss=loss)
    assert net[1].num_batches_tracked == 2
    assert torch.equal(torch.get_rng_state(), random_state)


def test_an_exception_in_a_trial_leaves_what_one_forward_leaves() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        loss = cross_entropy(net(x), y)
        if calls == 3:
            raise KeyError("in a trial")
        return loss

    with pytest.raises(KeyError, match="in a trial"):
        optimizer.step(closure)
    assert net[1].num_batches_tracked == 1


@pytest.mark.parametrize(
    "drawn", [random.random, lambda: torch.rand((), generator=GENERATOR).item()], ids=["random", "own"]
)
def test_a_loss_that_changes_by_itself_is_noticed_once(drawn: Callable[[], float]) -> None:
    random.seed(0)
    net = nn.Linear(5, 3)
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)

    def step() -> None:
        optimizer.step(lambda: cross_entropy(net(x), y) * (1 + drawn()))

    with pytest.warns(hotswap.HotSwapWarning, match="at the same parameters"):
        step()
    step()  # where a second warning would be an error


GENERATOR = torch.Generator().manual_seed(0)


def test_data_loaded_inside_the_closure_is_noticed() -> None:
    net = nn.Linear(5, 3)
    optimizer = HotSwapSGD(net.parameters())
    loader = iter(batches(100))

    def closure() -> Tensor:
        x, y = next(loader)
        return cross_entropy(net(x), y)

    with pytest.warns(hotswap.HotSwapWarning, match="load and augment the minibatch outside of it"):
        optimizer.step(closure)


def test_buffers_that_nobody_writes_to_are_left_alone() -> None:
    """An expanded one could not be written to, and a large table is not worth a copy at every step."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("mask", torch.ones(1).expand(3))
    net.register_buffer("table", torch.ones(2**18 + 1))
    optimizer = HotSwapSGD(net.parameters())
    free = torch.ones(2**18 + 1, requires_grad=True)
    saved = (net.table * free).square().sum()
    version = net.table._version
    for x, y in batches(3):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x) * net.mask * net.table[:3], y))
    assert net.table._version == version
    saved.backward()


class Late(nn.Module):
    """A buffer that is None until the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.register_buffer("seen", None)
        self.found: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found.append(self.seen is None)
        self.seen = torch.ones(()) if self.seen is None else self.seen + 1
        return self.linear(x) * self.seen


def test_a_buffer_that_was_not_there_is_not_there_for_trials() -> None:
    net = Late()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert all(net.found)
    assert net.seen == 1


def test_a_gradient_pass_that_came_to_nothing_is_forgotten() -> None:
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), (other_x, other_y) = batches(2)
    with optimizer.gradient_pass():
        cross_entropy(net(x), y).backward()
    optimizer.zero_grad()  # this minibatch is left out
    masks.seen.clear()
    with optimizer.gradient_pass():
        loss = cross_entropy(net(other_x), other_y)
        loss.backward()
    drawn = torch.rand(3)  # somebody else's numbers in between
    optimizer.step(trial_closure=lambda: cross_entropy(net(other_x), other_y), loss=loss)
    assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)
    assert not torch.equal(torch.rand(3), drawn)


def test_modules_are_found_also_after_a_freeze() -> None:
    """Who forks workers often freezes what is there before."""
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    gc.freeze()
    try:
        optimizer.step(lambda: cross_entropy(net(x), y))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert net[1].num_batches_tracked == 1


# --- cuDNN's dropout --------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Two layers with dropout in between; remembers what came out of each evaluation, and how."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head = nn.LSTM(5, 16, num_layers=2, dropout=0.5), nn.Linear(16, 3)
        self.outputs: list[Tensor] = []
        self.cudnn: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(x.unsqueeze(0))[0].squeeze(0))
        self.outputs.append(scores.detach().clone())
        self.cudnn.append((hotswap.in_trial(), torch.backends.cudnn.enabled))
        return scores


@pytest.mark.gpu
def test_recurrent_dropout_on_a_gpu_is_the_same_in_all_evaluations_of_a_step() -> None:
    """At a rate that moves nothing, a trial's output is the gradient pass's, mask by mask."""
    net = Recurrent().to("cuda")
    optimizer = HotSwapSGD(net.parameters(), lr=[1e-30])
    steps = []
    for x, y in [(x.cuda(), y.cuda()) for x, y in batches(4)]:
        net.outputs.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert len(net.outputs) > 1
        for output in net.outputs[1:]:
            torch.testing.assert_close(output, net.outputs[0], rtol=1e-4, atol=1e-5)
        assert torch.backends.cudnn.enabled
        steps.append(net(x))
        assert not torch.allclose(steps[-1], net.outputs[0], rtol=1e-4, atol=1e-5)  # other masks, so there are some


@pytest.mark.parametrize("own", [False, True], ids=["closure", "own backward"])
def test_cudnn_is_left_out_in_gradient_pass_and_trials(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_draws_privately", lambda module: module.training)  # as if it were on a GPU
    net = Recurrent()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    enabled = torch.backends.cudnn.enabled

    def closure() -> Tensor:
        return cross_entropy(net(x), y)

    if own:
        with optimizer.gradient_pass():
            loss = closure()
            loss.backward()
        optimizer.step(trial_closure=closure, loss=loss)
    else:
        optimizer.step(closure)
    assert set(net.cudnn) == {(False, False), (True, False)}
    assert torch.backends.cudnn.enabled == enabled
    net.cudnn.clear()
    net.eval()  # nothing is drawn
    optimizer.step(closure)
    assert set(net.cudnn) == {(False, enabled), (True, enabled)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_layers": 2, "dropout": 0.5}, True),
        ({"num_layers": 1}, False),
        ({"num_layers": 2, "dropout": 0.0}, False),
    ],
)
def test_who_draws_from_cudnns_generator(settings: dict[str, float], expected: bool) -> None:
    lstm = nn.LSTM(5, 4, **settings)  # type: ignore[arg-type]
    assert not modules._draws_privately(lstm)  # on a CPU nobody does
    lstm._flat_weights = [SimpleNamespace(is_cuda=True), None]  # type: ignore[list-item]
    assert modules._draws_privately(lstm) == expected
    lstm.training = False
    assert not modules._draws_privately(lstm)


def test_a_module_that_was_exchanged_is_looked_after() -> None:
    """By assignment, and past torch's own door."""
    net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16, affine=False), nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    doors = (None, net.__setitem__, lambda at, new: net._modules.update({str(at): new}))
    for (x, y), put in zip(batches(3), doors, strict=True):
        if put is not None:
            put(1, nn.BatchNorm1d(16, affine=False))
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert net[1].num_batches_tracked == 1


def test_a_buffer_of_another_size_is_copied_again() -> None:
    """In the same tensor: who grows a table in place does so."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("seen", torch.zeros(1))

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.seen += 1
        return cross_entropy(net(x) * net.seen.sum(), y)

    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3), start=1):
        net.seen.resize_(number).fill_(0)
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.seen.tolist() == [1.0] * number


def test_a_buffer_gets_its_first_values_in_a_step() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.LazyBatchNorm1d(affine=False), nn.Linear(8, 3))
    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert net[1].num_batches_tracked == number


def tracked(norm: nn.Module, optimizer: HotSwap, output: Callable[[Tensor], Tensor]) -> int:
    """By how much a step lets a batch norm's count advance."""
    (x, y), *_ = batches(1)
    before = int(norm.num_batches_tracked)
    optimizer.step(lambda: cross_entropy(output(x), y))
    return int(norm.num_batches_tracked) - before


def test_modules_are_found_when_they_are_taken_out_wrapped_or_share_a_weight() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    outer, norm = nn.Sequential(net), nn.BatchNorm1d(5, affine=False)
    optimizer = HotSwapSGD(net.parameters())
    assert tracked(net[1], optimizer, outer) == 1
    del outer[0]
    assert tracked(net[1], optimizer, net) == 1
    around = nn.Sequential(net[0], norm)  # around something inside
    assert tracked(norm, optimizer, lambda x: net[2](around(x))) == 1
    other = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, affine=False))
    other[0].weight = net[0].weight
    assert tracked(other[1], optimizer, lambda x: net[2](other(x))) == 1


class MadeLate(nn.Module):
    """Makes a module and a buffer when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.norm: nn.Module | None = None
        self.found: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found.append(hasattr(self, "scale"))
        if self.norm is None:
            self.norm = nn.BatchNorm1d(3, affine=False)
        if not hasattr(self, "scale"):
            self.register_buffer("scale", torch.tensor(2.0))
        return self.norm(self.linear(x)) * self.scale


def test_what_the_first_forward_makes_is_looked_after() -> None:
    net = MadeLate()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert net.norm is not None
    assert net.norm.num_batches_tracked == 1
    assert net.found == [False] * len(net.found)
    assert net.scale == 2


@pytest.mark.parametrize("size", [3, 2**18 + 1])
def test_a_buffer_that_is_written_to_behind_torchs_back(size: int) -> None:
    """Through `.data` no version counts."""
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("table", torch.zeros(size))
    optimizer = HotSwapSGD(net.parameters())

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.table.data.add_(1)
        return cross_entropy(net(x) + net.table[:3], y)

    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.table.eq(number).all()


def test_buffers_that_nobody_can_write_to() -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("scale", torch.zeros(1))
    net.register_buffer("wide", net.scale.expand(3))
    with torch.inference_mode():
        net.register_buffer("fixed", torch.ones(3))
    optimizer = HotSwapSGD(net.parameters())

    def closure(x: Tensor, y: Tensor) -> Tensor:
        net.scale.add_(1)
        return cross_entropy(net(x) * net.wide + net.fixed, y)

    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: closure(x, y))
        assert net.wide.tolist() == [float(number)] * 3


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_buffer_is_refused_every_time(layout: torch.layout) -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    before = net[0].weight.detach().clone()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"The buffer 'ragged' is a nested tensor, of which no copy can be"):
            optimizer.step(lambda: cross_entropy(net(x), y))
    assert torch.equal(net[0].weight, before)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_buffer_that_a_forward_makes_harms_no_other() -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    net.register_buffer("mask", torch.full((2**19,), 2.0))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    net.register_buffer("mask", torch.full((2**19,), 3.0))  # another one
    net.register_buffer("small", torch.full((2,), 4.0))

    def closure() -> Tensor:
        net.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        return cross_entropy(net(x), y)

    with pytest.raises(UnsupportedError, match="'ragged' is a nested tensor"):
        optimizer.step(closure)
    assert net.mask.eq(3).all()
    assert net.small.eq(4).all()
    del net.ragged
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert net.mask.eq(3).all()


def test_a_leaf_that_gets_a_module_is_looked_into() -> None:
    """Without torch being told."""
    net = nn.Sequential(nn.Linear(5, 8), nn.Identity(), nn.Linear(8, 3))
    optimizer = HotSwapSGD(net.parameters())
    late = nn.BatchNorm1d(8, affine=False)
    for number, (x, y) in enumerate(batches(4)):
        if number == 2:
            net[1]._modules["late"] = late
        optimizer.step(lambda x=x, y=y, on=number >= 2: cross_entropy(net[2](late(net[0](x)) if on else net[0](x)), y))
    assert late.num_batches_tracked == 2


def test_a_scripted_module() -> None:
    net = torch.jit.script(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))
    optimizer = HotSwapSGD(net.parameters())
    for number, (x, y) in enumerate(batches(3), start=1):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert dict(net.named_buffers())["1.num_batches_tracked"] == number


def test_a_gradient_pass_before_a_step_with_a_closure_is_forgotten() -> None:
    """Also where the gradients were not cleared through the optimizer."""
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    optimizer._known.add("no search any more")
    (x, y), *_ = batches(1)
    for interlude in (net.zero_grad, optimizer.step):
        with optimizer.gradient_pass():
            cross_entropy(net(x), y).backward()
        interlude()
        masks.seen.clear()
        optimizer.step(lambda: cross_entropy(net(x), y))
        assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)


def test_a_wrapper_that_was_dropped_is_let_go() -> None:
    net, teacher = nn.Sequential(nn.Linear(5, 3)), nn.Linear(5, 3)
    wrapper = nn.ModuleList([net, teacher])
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    gone = weakref.ref(wrapper), weakref.ref(teacher)
    del wrapper, teacher
    gc.collect()
    optimizer.step(lambda: cross_entropy(net(x), y))
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_module_made_in_the_first_of_several_gradient_passes_keeps_its_buffers() -> None:
    net = MadeLate()
    optimizer = HotSwapSGD(net.parameters())
    losses = []
    for x, y in (both := batches(2)):
        with optimizer.gradient_pass():
            losses.append(cross_entropy(net(x), y) / 2)
            losses[-1].backward()
    optimizer.step(trial_closure=lambda: sum(cross_entropy(net(x), y) / 2 for x, y in both), loss=sum(losses))
    assert net.norm is not None
    assert net.norm.num_batches_tracked == 2


def test_wrappers_that_a_closure_makes_are_forgotten() -> None:
    net = nn.Sequential(nn.Linear(5, 3))
    optimizer = HotSwapSGD(net.parameters())
    for x, y in batches(10):
        optimizer.step(lambda x=x, y=y: cross_entropy(nn.Sequential(net, nn.Identity())(x), y))
    gc.collect()
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    assert len(optimizer._guard._roots._modules) == 1
