"""The ways a user can say what is to be minimised."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import _init_optim_state
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import ClosureError, HotSwap, HotSwapSGD, HotSwapWarning
from tests.optim.helpers import batches, loss_of, model, same, train, weights


def test_the_documented_way() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    losses = []
    for batch in batches(150):
        loss = optimizer.step(loss_of(net, batch))
        losses.append(float(loss))
        assert not loss.requires_grad
        record = optimizer.last_step
        assert record.loss_before == loss.item()
        assert record.loss_after <= record.loss_before
        if record.arm is not None:
            assert record.values["lr"] == optimizer.arms.values(record.arm)["lr"]
            assert record.loss_after == dict(record.trials)[record.arm]
            assert loss_of(net, batch)().item() == record.loss_after
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])


def test_a_closure_with_its_own_backward_may_return_a_float() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    (batch,) = batches(1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = loss_of(net, batch)()
        loss.backward()
        return loss.item()

    with pytest.warns(HotSwapWarning):
        assert optimizer.step(closure).item() == optimizer.last_step.loss_before


def test_what_comes_with_the_gradient_pass_is_kept_without_its_graph() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    (batch,) = batches(1)
    at_start = net(batch[0]).detach()

    def closure() -> tuple[torch.Tensor, dict[str, object]]:
        scores = net(batch[0])
        return cross_entropy(scores, batch[1]), {"scores": scores, "more": [(scores, 1)], "name": "x", "none": None}

    optimizer.step(closure)
    aux = optimizer.last_step.aux
    assert isinstance(aux, dict)
    assert torch.equal(aux["scores"], at_start)
    assert not aux["scores"].requires_grad
    assert not aux["more"][0][0].requires_grad
    assert aux["more"][0][1:] == (1,)
    assert (aux["name"], aux["none"]) == ("x", None)
    marker = object()
    optimizer.step(lambda: (loss_of(net, batch)(), marker))
    assert optimizer.last_step.aux is marker


def test_in_trial() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    seen: list[tuple[bool, bool]] = []

    def closure() -> torch.Tensor:
        seen.append((hotswap.in_trial(), torch.is_grad_enabled()))
        return loss_of(net, batches(1)[0])()

    optimizer.step(closure)
    first = len(optimizer.last_step.trials)
    assert seen[0] == (False, True)
    assert set(seen[1:]) == {(True, False)}
    assert len(seen) == 2 + len(optimizer.last_step.trials)  # once more, to check the closure
    optimizer.step(closure)
    assert len(seen) - (2 + first) == 1 + len(optimizer.last_step.trials)
    assert not hotswap.in_trial()


def test_a_trial_closure_judges_on_something_else() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    first, second = batches(2)
    judged = loss_of(net, second)().item()
    loss = optimizer.step(loss_of(net, first), trial_closure=loss_of(net, second))
    record = optimizer.last_step
    assert record.loss_before == judged != loss.item()
    assert loss_of(net, second)().item() == record.loss_after < judged


def test_gradients_that_are_there_already() -> None:
    ours, theirs = model(), model()
    documented, manual = HotSwapSGD(ours.parameters()), HotSwapSGD(theirs.parameters())
    for batch in batches(50):
        documented.step(loss_of(ours, batch))
        manual.zero_grad()
        loss = loss_of(theirs, batch)()
        loss.backward()
        returned = manual.step(trial_closure=loss_of(theirs, batch), loss=loss)
        assert not returned.requires_grad
        assert documented.last_step == manual.last_step
    assert same(weights(ours), weights(theirs))


def test_without_a_closure_before_any_search_there_is_no_step() -> None:
    """Only the constructor was exchanged in the loop."""
    net = model()
    optimizer = HotSwapSGD(net.parameters(), lr=[0.5, 0.1, 0.02], momentum=0.9)
    (batch,) = batches(1)
    loss_of(net, batch)().backward()
    before = weights(net)
    for _ in range(2):
        with pytest.raises(
            ClosureError, match=r"Write optimizer\.step\(lambda: loss_fn\(model\(x\), y\)\) in place of"
        ):
            optimizer.step()
    assert same(weights(net), before)
    assert not optimizer.state
    assert optimizer.last_step is None


@pytest.mark.parametrize("gradients", ["none", "zero", "of torch"])
def test_a_step_without_gradients_makes_state_to_load_into(gradients: str) -> None:
    """As libraries for checkpoints take it, before any search."""
    net = model()
    optimizer = HotSwap(torch.optim.Adam(net.parameters()), {"lr": [0.5, 0.1]})
    before = weights(net)
    if gradients == "of torch":
        _init_optim_state(optimizer)
    else:
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter) if gradients == "zero" else None
        optimizer.step()
    assert same(weights(net), before)
    assert len(optimizer.state) == (0 if gradients == "none" else 4)
    optimizer.step(loss_of(net, batches(1)[0]))
    assert optimizer.last_step.trials


def test_without_a_closure_the_values_in_force_are_those_of_the_latest_search() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    train(net, optimizer, batches(40))
    taken = optimizer.last_step.values["lr"]
    assert taken
    known = optimizer.statistics()
    before = weights(net)
    with pytest.warns(HotSwapWarning, match=f"what the latest search chose applies, lr={taken:g}"):
        optimizer.step()
    for parameter, old in zip(net.parameters(), before, strict=True):
        assert torch.allclose(parameter, old - taken * parameter.grad)  # type: ignore[operator]
    assert optimizer.statistics() == known
    optimizer.step()  # said once


KINDS: dict[str, Any] = {
    "sgd": HotSwapSGD,
    "momentum": lambda p: HotSwapSGD(p, momentum=0.9),
    "adam": lambda p: HotSwap(torch.optim.Adam(p)),
    "exact": lambda p: HotSwap(torch.optim.Adafactor(p)),
    "product": lambda p: HotSwap(torch.optim.SGD(p, lr=1.0), {"lr": [10.0, 1.0, 0.1], "momentum": [0.0, 0.9]}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clears", ["no", "to none", "in place", "own backward", "own backward, in place"])
def test_closures_may_clear_gradients_as_they_like(kind: str, clears: str) -> None:
    """The gradient of the start point is what is used, whatever a trial does to `.grad`. Backwards are warned of."""
    ours, theirs = model(), model()
    plain, clearing = KINDS[kind](ours.parameters()), KINDS[kind](theirs.parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HotSwapWarning)
        for batch in batches(45):
            plain.step(loss_of(ours, batch))

            def closure(batch: Any = batch) -> torch.Tensor:
                if clears != "no":
                    clearing.zero_grad(set_to_none="in place" not in clears)
                loss = loss_of(theirs, batch)()
                if "own backward" in clears:
                    loss.backward()
                return loss

            clearing.step(closure)
            assert plain.last_step == clearing.last_step
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]  # of the start point, not of a trial
    assert same(weights(ours), weights(theirs))
    assert len(caught) == ("own backward" in clears)
    assert all("every trial then pays for a backward pass" in str(warning.message) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)


@pytest.mark.parametrize("to_none", [True, False])
def test_a_trial_closure_may_clear_gradients_too(to_none: bool) -> None:
    ours, theirs = model(), model()
    plain, clearing = HotSwapSGD(ours.parameters()), HotSwapSGD(theirs.parameters())
    for batch in batches(45):
        plain.step(loss_of(ours, batch), trial_closure=loss_of(ours, batch))
        judge = loss_of(theirs, batch)
        clearing.step(
            loss_of(theirs, batch), trial_closure=lambda judge=judge: (clearing.zero_grad(to_none), judge())[1]
        )
    assert same(weights(ours), weights(theirs))


def test_autocast_around_the_step_sees_the_weights_of_each_trial() -> None:
    losses = []
    for around in (True, False):
        net = model()
        optimizer = HotSwapSGD(net.parameters())
        for batch in batches(40):
            cast = torch.autocast("cpu", dtype=torch.bfloat16)
            if around:
                with cast:
                    optimizer.step(loss_of(net, batch))
            else:

                def closure(batch: Any = batch, net: Any = net) -> torch.Tensor:
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        return loss_of(net, batch)()

                optimizer.step(closure)
        losses.append(optimizer.last_step.trials)
    assert losses[0] == losses[1]
    assert len({loss for _, loss in losses[0]}) > 1


def test_autocast_around_the_loop_sees_the_weights_after_the_step() -> None:
    """torch keeps casts of the weights until an autocast ends; those of a step would be of trials, without a graph."""
    net = model()
    optimizer = HotSwapSGD(net.parameters())
    taken_back = 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for batch in batches(40):
            optimizer.step(loss_of(net, batch))
            here = net(batch[0])
            with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
                assert torch.equal(here, net(batch[0]))
            (gradient,) = torch.autograd.grad(here.float().sum(), net[0].weight)
            assert gradient.isfinite().all()
            taken_back += optimizer.last_step.arm != optimizer.last_step.trials[-1][0]
    assert taken_back > 10  # the weights moved once more after the last trial


def test_a_trial_does_not_see_casts_of_the_weights_before() -> None:
    """Also those of somebody who was there before the step, and evaluates under the same autocast."""
    net = model()
    optimizer = HotSwapSGD(net.parameters(), lr=[10.0, 1.0])
    (batch,) = batches(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_of(net, batch)()
        optimizer.step(loss_of(net, batch))
        record = optimizer.last_step
    assert all(loss != record.loss_before for _, loss in record.trials)
    assert len({loss for _, loss in record.trials}) == len(record.trials)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_not_finite_is_refused_and_poisons_nothing(kind: str) -> None:
    parameter = torch.nn.Parameter(torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    optimizer = KINDS[kind]([parameter])
    optimizer.step(lambda: parameter.square().sum() + 1)
    with torch.no_grad():
        parameter.copy_(torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    before, known, state = parameter.detach().clone(), optimizer.statistics(), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ClosureError, match="The loss is finite but its gradient is not"):
        # the losses of all trials are finite, too: only the gradient tells
        optimizer.step(lambda: torch.where(parameter > 0, parameter.sqrt(), torch.zeros(())).sum())
    assert torch.equal(parameter.detach(), before)
    assert optimizer.statistics() == known
    assert str(optimizer.state_dict()["state"]) == str(state["state"])


def test_a_base_that_raises_leaves_the_weights() -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    before = table.weight.detach().clone()
    optimizer = HotSwap(torch.optim.Adam(table.parameters(), weight_decay=0.0))
    with pytest.raises(RuntimeError):
        optimizer.step(lambda: table(torch.tensor([1])).square().sum())
    assert torch.equal(table.weight.detach(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closure_that_raises_in_a_trial_leaves_everything_as_it_was(kind: str) -> None:
    net = model()
    optimizer = KINDS[kind](net.parameters())
    (batch,) = batches(1)
    optimizer.step(loss_of(net, batch))
    before, known, state = weights(net), optimizer.statistics(), str(optimizer.state_dict()["state"])

    def closure() -> torch.Tensor:
        if hotswap.in_trial():
            raise KeyboardInterrupt
        return loss_of(net, batch)()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert same(weights(net), before)
    assert optimizer.statistics() == known
    if kind != "adam":  # which has seen the gradient: a way back would take a copy of its state
        assert str(optimizer.state_dict()["state"]) == state
    assert not hotswap.in_trial()
    optimizer.step(loss_of(net, batch))  # and it goes on
