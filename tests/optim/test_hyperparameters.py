"""Arms over any hyperparameter of any of torch's optimizers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotswap import Arms, Bandit, CheckpointError, DiscountedUCB, FactoredBandit, HotSwap
from hotswap.optim.moves import REFUSED_BASES
from tests.optim.helpers import batches, loss_of, model, own_entry, train, weights

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


def factored(net: nn.Module, **settings: Any) -> HotSwap:
    """Arms over two rates and three momenta: one bandit for all six combinations would have six statistics."""
    base = torch.optim.SGD(net.parameters(), lr=1.0)
    return HotSwap(base, {"lr": [0.3, 0.1], "momentum": [0.9, 0.5, 0.0]}, factored=True, **settings)


def test_one_bandit_for_each_hyperparameter_has_a_statistic_for_each_value() -> None:
    net = model()
    optimizer = factored(net)
    assert isinstance(optimizer.bandit, FactoredBandit)
    assert optimizer.bandit.shape == (3, 2)
    losses = [optimizer.step(loss_of(net, batch)) for batch in batches(60)]
    assert sum(losses[-10:]) < sum(losses[:10])
    learned = own_entry(optimizer)["bandit"]
    assert learned["axis0_counts"].shape == (1, 3)  # of momentum
    assert learned["axis1_counts"].shape == (1, 2)  # of the rate
    assert (learned["axis0_counts"] > 0).all()
    assert (learned["axis1_counts"] > 0).all()


def test_what_is_said_of_a_combination_is_what_is_known_of_its_values() -> None:
    net = model()
    optimizer = factored(net)
    records = train(net, optimizer, batches(30))
    assert {arm // 2 for record in records for arm, _ in record.trials} == {0, 1, 2}  # every momentum was tried
    learned, rows = own_entry(optimizer)["bandit"], optimizer.statistics()
    means = [learned[f"axis{axis}_rewards"][0] / learned[f"axis{axis}_counts"][0] for axis in (0, 1)]
    for arm, row in enumerate(rows):
        momentum, rate = divmod(arm, 2)
        assert row.values == {"momentum": (0.9, 0.5, 0.0)[momentum], "lr": (0.3, 0.1)[rate]}
        assert row.mean == pytest.approx((means[0][momentum] + means[1][rate]).item() / 2)
        assert row.count == min(learned["axis0_counts"][0, momentum], learned["axis1_counts"][0, rate])
    printed = str(rows).splitlines()
    assert len(printed) == 1 + 6
    assert printed[0].split() == ["arm", "momentum", "lr", "count", "mean", "reward", "index"]
    assert sum("<- largest index" in line for line in printed) == 1
    assert "FactoredBandit" in repr(optimizer)


def test_a_checkpoint_of_one_bandit_for_all_combinations_is_refused() -> None:
    net = model()
    whole = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.3, 0.1], "momentum": [0.9, 0.5, 0.0]})
    with pytest.raises(CheckpointError, match="another bandit"):
        factored(net).load_state_dict(whole.state_dict())


def test_a_bandit_is_told_what_its_arms_stand_for() -> None:
    told: list[Arms] = []

    class Asks(DiscountedUCB):
        def knowing(self, arms: Arms) -> Bandit:
            told.append(arms)
            return self

    net = model()
    optimizer = HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [0.3, 0.1]}, Asks())
    assert told == [optimizer.arms]
