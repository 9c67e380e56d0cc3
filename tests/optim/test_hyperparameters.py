"""Arms over any hyperparameter of any of torch's optimizers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap import Arms, Bandit, DiscountedUCB, HotSwap, SettingError
from hotswap.optim.probing.moves import REFUSED_BASES
from tests.optim.helpers import batches, loss_of, model, same, train, weights

OTHERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.5, "dampening": 0.1, "weight_decay": 0.1},
    "Adam": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    "AdamW": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    "NAdam": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 0.1},
    "RAdam": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    "Adamax": {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1},
    "RMSprop": {"alpha": 0.5, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.5},
    "Adadelta": {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.1},
    "Adagrad": {"lr_decay": 0.5, "eps": 1e-3, "weight_decay": 0.1},
    "Adafactor": {"beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 2.0, "weight_decay": 0.1},
    "SparseAdam": {"betas": (0.5, 0.9), "eps": 1e-3},
    "Muon": {"momentum": 0.5, "weight_decay": 0.3, "eps": 1e-3},
}
"""Another value than the default of each hyperparameter that arms can be over, beside the rate."""
CASES = [(base, name) for base, values in OTHERS.items() for name in values]
NOT_SWAPPED = {"initial_accumulator_value", "ns_coefficients", "ns_steps"}
"""Read once, when the optimizer is constructed, or settings of an inner loop."""


def network(base: str) -> tuple[nn.Module, Any]:
    if base == "SparseAdam":
        torch.manual_seed(0)
        net: nn.Module = nn.EmbeddingBag(20, 3, sparse=True)
        x = torch.arange(32).remainder(20).reshape(8, 4)
        return net, (x, torch.arange(8).remainder(3))
    net = model()
    if base == "Muon":
        for module in (net[0], net[2]):  # it takes matrices only
            module.bias.requires_grad_(False)
    return net, batches(1)[0]


def made(base: str, net: nn.Module, **values: Any) -> Optimizer:
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer: Optimizer = getattr(torch.optim, base)(parameters, lr=0.01, **values)
    return optimizer


def test_every_optimizer_of_torch_and_every_number_of_it_is_in_the_table() -> None:
    known = {
        name: kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind is not Optimizer
    }
    assert set(known) == set(OTHERS) | {kind.__name__ for kind in REFUSED_BASES}
    for base, values in OTHERS.items():
        defaults = made(base, network(base)[0]).defaults
        numbers = {
            name
            for name, value in defaults.items()
            if isinstance(value, (int, float, tuple)) and not isinstance(value, bool)
        }
        assert numbers - NOT_SWAPPED - {"lr"} == set(values)


@pytest.mark.parametrize(("base", "name"), CASES)
def test_a_trial_has_the_value_of_its_arm(base: str, name: str) -> None:
    """Steps with the one arm there is are those of an optimizer that has its value from the start."""
    value = OTHERS[base][name]
    net, batch = network(base)
    twin, _ = network(base)
    optimizer, plain = HotSwap(made(base, net), {name: [value]}), made(base, twin, **{name: value})
    own = optimizer.param_groups[0][name]
    for _ in range(3):
        optimizer.step(loss_of(net, batch))
        assert optimizer.last_step is not None
        assert optimizer.last_step.values == {name: value}
        plain.zero_grad()
        loss_of(twin, batch)().backward()
        plain.step()
    for ours, theirs in zip(weights(net), weights(twin), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert optimizer.param_groups[0][name] == own  # the user's value is as it was


@pytest.mark.parametrize(("base", "name"), CASES)
def test_arms_over_it_and_the_rate_learn(base: str, name: str) -> None:
    net, batch = network(base)
    own = (1e-4, 1e-3) if (base, name) == ("Adafactor", "eps") else made(base, net).defaults[name]
    optimizer = HotSwap(made(base, net), {"lr": [0.1, 0.01], name: [own, OTHERS[base][name]]}, check_closure=False)
    losses: list[Tensor] = [optimizer.step(loss_of(net, batch)) for _ in range(30)]
    assert losses[-1] < losses[0]
    assert all(row.count > 0 for row in optimizer.statistics())


def test_an_unknown_name_lists_what_there_is() -> None:
    net = model()
    with pytest.raises(SettingError, match="it has betas, eps, lr, weight_decay, and there are setters for dropout"):
        HotSwap(
            torch.optim.Adam(net.parameters()),
            {"lr": [0.1], "momentum": [0.5], "dropout": [0.1]},
            setters={"dropout": lambda _: None},
        )


def test_one_bandit_for_each_hyperparameter() -> None:
    bandits = pytest.importorskip("hotswap.bandits")
    if not hasattr(bandits, "FactoredBandit"):
        pytest.skip("there is no FactoredBandit yet")
    net = model()
    optimizer = HotSwap(
        torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.3, 0.1], "momentum": [0.9, 0.5, 0.0]}, factored=True
    )
    assert isinstance(optimizer.bandit, bandits.FactoredBandit)
    records = train(net, optimizer, batches(30))
    assert len({record.values["momentum"] for record in records}) > 1
    assert len(str(optimizer.statistics()).splitlines()) == 7
    assert "FactoredBandit" in repr(optimizer)
    twin_net = model()
    twin = HotSwap(
        torch.optim.SGD(twin_net.parameters(), lr=1.0), {"lr": [0.3, 0.1], "momentum": [0.9, 0.5, 0.0]}, factored=True
    )
    twin_net.load_state_dict(net.state_dict())
    twin.load_state_dict(optimizer.state_dict())
    data = batches(10, seed=3)
    assert train(twin_net, twin, data) == train(net, optimizer, data)
    assert same(weights(twin_net), weights(net))


def test_a_bandit_is_told_what_its_arms_stand_for() -> None:
    told: list[Arms] = []

    class Asks(DiscountedUCB):
        def knowing(self, arms: Arms) -> Bandit:
            told.append(arms)
            return self

    net = model()
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.3, 0.1]}, Asks())
    assert told == [optimizer.arms]
