"""Copies of any module, buffers included, are what each would be in an ordinary training loop of PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from hotswap import HotSwapSGD
from hotswap.ensemble import Ensemble, FunctionalModel, Sgd, TrainingData, Update
from hotswap.errors import UnsupportedError
from hotswap.networks import convolutional
from tests.ensemble.helpers import adadelta, hot_swapped

D = torch.float64
SHAPE = (2, 6, 5)
BATCH = 8
SEEDS = [0, 1, 2]


def build(seed: int) -> nn.Module:
    return convolutional(SHAPE, 3, seed=seed, channels=(4, 5))


def data(count: int = 80) -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count + 30, *SHAPE, generator=generator, dtype=D)
    y = (x[:, 0].mean((1, 2)) > 0).long() + (x[:, 1, 2] > 0).any(1).long()
    return TrainingData(x[:count], y[:count], x[count:], y[count:])


def batches(epochs: int, data_seed: int = 5) -> list[tuple[Tensor, Tensor]]:
    held, made = data(), []
    for epoch in range(epochs):
        shuffle = torch.Generator().manual_seed(data_seed * 1_000_003 + epoch)
        order = torch.randperm(len(held.train_x), generator=shuffle).view(-1, BATCH)
        made.extend((held.train_x[rows], held.train_y[rows]) for rows in order)
    return made


def train(update: Update, epochs: int = 2) -> Ensemble:
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    for epoch in range(epochs):
        ensemble.train_epoch(epoch)
    return ensemble


def assert_same(ensemble: Ensemble, run: int, network: nn.Module) -> None:
    """A run has the network's parameters and buffers, and evaluates to the same."""
    row = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(ensemble.update.theta[run], row, rtol=1e-9, atol=1e-9)
    state = ensemble.state()
    assert {name for name, _ in network.named_buffers()} == {
        name.removeprefix("model/") for name in state if name.startswith("model/")
    }
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(state[f"model/{name}"][run], buffer, rtol=1e-9, atol=1e-9)
    network.eval()
    held, measured = data(), ensemble.measure()
    with torch.no_grad():
        scores = network(held.test_x)
    assert measured.test_nll[run] == pytest.approx(cross_entropy(scores, held.test_y).item(), rel=1e-8)
    assert measured.test_error[run] == pytest.approx((scores.argmax(1) != held.test_y).double().mean().item())


OPTIMIZERS: dict[str, Callable[[nn.Module, int], torch.optim.Optimizer]] = {
    "sgd": lambda net, run: torch.optim.SGD(net.parameters(), (0.1, 0.03, 0.3)[run], (0.9, 0.9, 0.0)[run]),
    "adadelta": lambda net, run: torch.optim.Adadelta(net.parameters(), lr=1.0, rho=0.95, eps=1e-6),
    "ducb": lambda net, run: HotSwapSGD(net.parameters()),
}


def update_of(name: str, model: FunctionalModel) -> Update:
    if name == "ducb":
        return hot_swapped(model, SEEDS)
    theta = model.initial(SEEDS).to(D)
    return (
        adadelta(model, theta) if name == "adadelta" else Sgd(model, theta, [0.1, 0.03, 0.3], [1.0] * 3, [0.9, 0.9, 0])
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_convolutions_with_batch_norm_are_trained_as_pytorch_does(name: str) -> None:
    ensemble = train(update_of(name, FunctionalModel(build)))
    for run, seed in enumerate(SEEDS):
        network = build(seed).to(D)
        optimizer = OPTIMIZERS[name](network, run)
        for x, y in batches(2):

            def closure(x: Tensor = x, y: Tensor = y, network: nn.Module = network) -> Tensor:
                network.zero_grad()
                loss = cross_entropy(network(x), y)
                if name != "ducb":
                    loss.backward()
                return loss

            optimizer.step(closure)
        assert_same(ensemble, run, network)
        assert int(network[1].num_batches_tracked) == len(batches(2))


def test_trials_are_losses_of_moved_copies_and_leave_buffers_alone() -> None:
    model = FunctionalModel(build)
    theta = model.initial(SEEDS).to(D)
    buffers = model.begin(theta)
    (x, y), *_ = batches(1)
    gradient = model.before_trials(model.gradient(theta, x, y), x)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    rates = torch.tensor([[1.0, 0.1], [0.3, 3.0], [10.0, 0.0]], dtype=D)
    losses = model.trials(theta, gradient, rates, x, y)
    model.gradient_norm(theta, x, y)
    model.scores(theta, x)
    for name, buffer in buffers.items():
        assert torch.equal(buffer, before[name]), name
    for run, seed in enumerate(SEEDS):
        for arm, rate in enumerate(rates[run].tolist()):
            network = build(seed).to(D)
            cross_entropy(network(x), y).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.sub_(parameter.grad, alpha=rate)
            assert losses[run, arm].item() == pytest.approx(cross_entropy(network(x), y).item(), rel=1e-9)


def test_a_run_goes_on_exactly_from_what_the_state_holds() -> None:
    def fresh(seeds: list[int]) -> Ensemble:
        model = FunctionalModel(build)
        return Ensemble(adadelta(model, model.initial(seeds).to(D)), data(), BATCH, data_seed=5)

    straight, stopped, resumed = fresh(SEEDS), fresh(SEEDS), fresh([7, 8, 9])
    for ensemble in (straight, stopped):
        ensemble.train_epoch(0)
    for name, tensor in resumed.state().items():
        tensor.copy_(stopped.state()[name].clone())
    for ensemble in (straight, resumed):
        ensemble.train_epoch(1)
    for name, tensor in straight.state().items():
        assert torch.equal(tensor, resumed.state()[name]), name
    assert straight.measure() == resumed.measure()


class Frozen(nn.Module):
    """A frozen random layer, a counter that is replaced instead of written into, and one trained layer."""

    seen: Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.features = nn.Parameter(torch.randn(4, 10, generator=generator), requires_grad=False)
        self.last = nn.Linear(4, 3)
        nn.init.zeros_(self.last.bias)
        with torch.no_grad():
            self.last.weight.copy_(torch.randn(3, 4, generator=generator))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen = self.seen + 1
        scores: Tensor = self.last(torch.tanh(x[:, 0, :2].flatten(1) @ self.features.t()))
        return scores


def test_frozen_parameters_stay_and_replaced_buffers_count() -> None:
    model = FunctionalModel(Frozen)
    theta = model.initial(SEEDS).to(D)
    assert theta.shape == (3, 15)
    ensemble = train(Sgd(model, theta, [0.1] * 3, [1.0] * 3, [0.0] * 3))
    state = ensemble.state()
    assert state["model/seen"].tolist() == [len(batches(2))] * 3
    for run, seed in enumerate(SEEDS):
        assert torch.equal(state["model/features"][run], Frozen(seed).features.to(D))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(60, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(dropout(x.flatten(1), 0.5, self.training))
        return scores


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Dropout(0.1), "^The layer '1' of the network, Dropout, draws random numbers while it trains"),
        (nn.LSTM(3, 3, num_layers=2, dropout=0.5), "^The layer '1' of the network, LSTM, draws random numbers"),
        (nn.RReLU(), "^The layer '1' of the network, RReLU, draws random numbers"),
        (nn.BatchNorm1d(3, momentum=None), "^The layer '1' of the network, BatchNorm1d, has momentum=None"),
    ],
)
def test_layers_that_cannot_be_vectorised_over_runs_are_refused(layer: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        FunctionalModel(lambda seed: nn.Sequential(nn.Linear(3, 3), layer))


def test_dropout_that_is_no_layer_is_refused_when_it_draws() -> None:
    model = FunctionalModel(lambda seed: Masked())
    theta = model.initial(SEEDS).to(D)
    (x, y), *_ = batches(1)
    assert model.scores(theta, x).shape == (3, BATCH, 3)  # evaluation draws nothing
    with pytest.raises(UnsupportedError, match=r"^The network draws random numbers while it trains"):
        model.gradient(theta, x, y)
    FunctionalModel(lambda seed: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)))


def test_buffers_belong_to_the_rows_that_were_made_last() -> None:
    model = FunctionalModel(build)
    theta = model.initial(SEEDS)
    with pytest.raises(ValueError, match="take θ from the latest call"):
        model.begin(theta[:2])
    with pytest.raises(ValueError, match="take θ from the latest call"):
        FunctionalModel(build).begin(theta)


def test_memory_of_an_evaluation_counts_what_every_layer_returns() -> None:
    model = FunctionalModel(build)
    theta = model.initial(SEEDS).to(D)
    first = 3 * 4 * 6 * 5 + 4 * 3 * 2  # convolution, batch norm and ReLU, then half as high and as wide
    second = 3 * 5 * 3 * 2 + 5
    last = 5 + 5 + 3
    assert model.sample_bytes(theta, data().train_x) == 3 * 8 * (2 * 6 * 5 + first + second + last)


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(30, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x.flatten(1))
        return scores if float(scores.sum()) > 0 else 2 * scores


def test_a_network_that_looks_at_its_numbers_is_refused_in_a_sentence() -> None:
    model = FunctionalModel(lambda seed: Looking())
    theta = model.initial(SEEDS).to(D)
    held = data()
    with pytest.raises(UnsupportedError, match="looks at the numbers that it computes"):
        model.gradient(theta, held.train_x[:, :1], held.train_y)


@pytest.mark.gpu
def test_cuda_graphs_of_a_convolution_do_what_the_cpu_does() -> None:
    results = []
    for device in ("cpu", "cuda"):
        model = FunctionalModel(build)
        held = data()
        moved = TrainingData(*(t.to(device) for t in (held.train_x, held.train_y, held.test_x, held.test_y)))
        update = hot_swapped(model, SEEDS, device)
        ensemble = Ensemble(update, moved, BATCH, data_seed=5)
        for epoch in range(2):
            ensemble.train_epoch(epoch)
        results.append(({name: tensor.cpu() for name, tensor in ensemble.state().items()}, ensemble.measure()))
    for name, tensor in results[0][0].items():
        torch.testing.assert_close(tensor, results[1][0][name], rtol=1e-7, atol=1e-7)
    assert results[0][1].test_error == pytest.approx(results[1][1].test_error)
