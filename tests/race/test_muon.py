"""Muon: which parameters it orthogonalizes, what its steps are, and the lanes that are made with it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import hotswap
from hotswap import SettingError
from tests.race.helpers import Sparse, Tied, equal, loss_of, made, minibatches, perceptron, through_a_file

RATE, DECAY, MOMENTUM = 0.02, 0.05, 0.95


def newton_schulz(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The five iterations of the quintic polynomial, on one matrix, in float64."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(5):
        product = x @ x.T
        x = a * x + (b * product + c * product @ product) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def by_hand(weight: Tensor, gradients: list[Tensor], parts: int | None) -> Tensor:
    """The weight after steps of Muon, each of its matrices on its own; a stack of matrices has no number of parts."""
    sides = weight.shape if parts is None else (parts, -1, int(np.prod(weight.shape[1:])))
    w = weight.detach().double().numpy().reshape(sides).copy()
    momentum = np.zeros_like(w)
    for gradient in gradients:
        g = gradient.double().numpy().reshape(w.shape)
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * g
        ahead = MOMENTUM * momentum + (1 - MOMENTUM) * g
        updates = np.stack([newton_schulz(update) for update in ahead])
        w = (1 - RATE * DECAY) * w - RATE * 0.2 * max(w.shape[1:]) ** 0.5 * updates
    return torch.from_numpy(w).reshape(weight.shape)


class Blocks(nn.Module):
    """Stacks of matrices, as experts have them, a table of positions and a scale for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.randn(3, 4, 5))
        self.positions = nn.Parameter(torch.randn(1, 6, 4))
        self.scales = nn.Parameter(torch.randn(4, 1, 1))


MATRICES: dict[str, tuple[Callable[[], nn.Module], str, int | None]] = {
    "a wide layer": (lambda: nn.Linear(7, 3), "weight", 1),
    "a high layer": (lambda: nn.Linear(3, 7), "weight", 1),
    "a convolution": (lambda: nn.Conv2d(3, 5, 2), "weight", 1),
    "a grouped convolution": (lambda: nn.Conv2d(4, 6, 3, groups=2), "weight", 2),
    "a depthwise convolution with several filters": (lambda: nn.Conv1d(3, 6, 4, groups=3), "weight", 3),
    "a transposed convolution": (lambda: nn.ConvTranspose2d(3, 5, 2), "weight", 1),
    "the gates of an LSTM": (lambda: nn.LSTM(3, 4), "weight_ih_l0", 4),
    "the hidden gates of a GRU": (lambda: nn.GRU(3, 4, bidirectional=True), "weight_hh_l0_reverse", 3),
    "the gates of a cell": (lambda: nn.LSTMCell(3, 4), "weight_hh", 4),
    "a plain recurrent layer": (lambda: nn.RNN(3, 4), "weight_hh_l0", 1),
    "query, key and value": (lambda: nn.MultiheadAttention(6, 2), "in_proj_weight", 3),
    "a stack of matrices": (Blocks, "experts", None),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_a_step_orthogonalizes_each_matrix_on_its_own(kind: str) -> None:
    build, name, parts = MATRICES[kind]
    model = made(build)
    optimizer = hotswap.Muon(model, lr=RATE, weight_decay=DECAY)
    weight = dict(model.named_parameters())[name]
    start, gradients = weight.detach().clone(), []
    for _ in range(3):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        assert weight.grad is not None
        gradients.append(weight.grad.clone())
        optimizer.step()
    torch.testing.assert_close(weight.detach().double(), by_hand(start, gradients, parts), rtol=1e-4, atol=1e-5)


def test_steps_are_torchs_up_to_bfloat16() -> None:
    """torch's Muon takes the products in bfloat16 everywhere, and matrices alone."""
    model = nn.Sequential(nn.Linear(16, 32, bias=False), nn.Linear(32, 8, bias=False), nn.Linear(8, 8, bias=False))
    other = copy.deepcopy(model)
    ours = hotswap.Muon(model, lr=RATE, weight_decay=DECAY)
    theirs = torch.optim.Muon(other.parameters(), lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours.step()
        theirs.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert (p - q).abs().max() < 0.03 * 5 * RATE
        torch.testing.assert_close(ours.state[p]["momentum_buffer"], theirs.state[q]["momentum_buffer"])


def test_singular_values_are_moved_to_about_one() -> None:
    model = nn.Linear(30, 20, bias=False)
    optimizer = hotswap.Muon(model, lr=1.0, weight_decay=0.0)
    before = model.weight.detach().clone()
    model.weight.grad = torch.randn(20, 30) @ torch.diag(torch.logspace(-1, 1, 30))
    optimizer.step()
    values = torch.linalg.svdvals((before - model.weight.detach()) / (0.2 * 30**0.5))
    assert values.min() > 0.5
    assert values.max() < 1.3


class Everything(nn.Module):
    """What AdamW trains, and a layer beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.bag = nn.EmbeddingBag(5, 4)
        self.depthwise = nn.Conv1d(4, 4, 3, groups=4)
        self.row = nn.Linear(4, 1)
        self.turn = nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        self.blocks = Blocks()


def test_embeddings_tied_heads_complex_parameters_and_vectors_are_left_to_adamw() -> None:
    model = made(Everything)
    optimizer = hotswap.Muon(model, lr=RATE)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    start = copy.deepcopy(model)
    optimizer.step()
    orthogonalized = {name for name, p in model.named_parameters() if "momentum_buffer" in optimizer.state[p]}
    assert orthogonalized == {"layer.weight", "blocks.experts"}
    rest = {name: p for name, p in start.named_parameters() if name not in orthogonalized}
    vectors = [p for p in rest.values() if p.ndim < 2]
    matrices = [p for p in rest.values() if p.ndim > 1]
    for p, q in zip(start.parameters(), model.parameters(), strict=True):
        p.grad = q.grad
    adamw = AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY
    )
    adamw.step()
    ours = dict(model.named_parameters())
    for name, p in rest.items():
        torch.testing.assert_close(ours[name], p)


def test_sparse_gradients_are_stepped_as_dense_ones() -> None:
    model = made(Sparse)
    dense = copy.deepcopy(model)
    dense.embed.sparse = False
    for one in (model, dense):
        optimizer = hotswap.Muon(one, lr=RATE)
        for batch in minibatches(5):
            loss_of(one, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(model.embed.weight, dense.embed.weight)


def test_parameters_without_gradients_and_frozen_ones_stay() -> None:
    model = made(perceptron)
    model[0].weight.requires_grad_(False)
    optimizer = hotswap.Muon(model, lr=RATE)
    before = [p.detach().clone() for p in model.parameters()]
    model[2].weight.grad = torch.randn(4, 8)
    optimizer.step()
    moved = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == [False, False, True, False]


def test_a_closure_is_called_once_with_gradients() -> None:
    model = made(perceptron)
    optimizer, calls = hotswap.Muon(model, lr=RATE), []

    def closure() -> Tensor:
        calls.append(1)
        loss = loss_of(model, minibatches(1)[0])
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure) > 0
    assert calls == [1]


def trained(model: nn.Module, optimizer: Any, batches: Any) -> list[Tensor]:
    for batch in batches:
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("how", ["checkpoint", "deepcopy", "pickle"])
def test_it_goes_on_exactly(how: str) -> None:
    model, batches = made(Tied), minibatches(20)
    optimizer = hotswap.Muon(model, lr=RATE)
    trained(model, optimizer, batches[:8])
    if how == "checkpoint":
        again = made(Tied, seed=4)
        other = hotswap.Muon(again, lr=1.0)
        again.load_state_dict(through_a_file(model.state_dict()))
        other.load_state_dict(through_a_file(optimizer.state_dict()))
    elif how == "deepcopy":
        again, other = copy.deepcopy((model, optimizer))
    else:
        again, other = pickle.loads(pickle.dumps((model, optimizer)))
    assert equal(trained(again, other, batches[8:]), trained(model, optimizer, batches[8:]))


def test_a_group_of_its_own_can_be_added() -> None:
    model = made(perceptron)
    optimizer = hotswap.Muon(model[0], lr=RATE)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.0})
    before = model[2].weight.detach().clone()
    trained(model, optimizer, minibatches(2))
    assert torch.equal(model[2].weight, before)
    assert "momentum_buffer" in optimizer.state[model[2].weight]


MODEL = perceptron()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hotswap.Muon(MODEL.parameters()), "needs the model, and was given parameters"),
        (lambda: hotswap.Muon(nn.Linear), "the class Linear"),
        (lambda: hotswap.Muon(nn.Identity()), "nothing to train"),
        *((lambda n=n: hotswap.Muon(MODEL, lr=n), "lr=.*at least 0") for n in (-1, "0.1", None, float("inf"))),
        (lambda: hotswap.Muon(MODEL, weight_decay=-0.1), "weight_decay=-0.1.*at least 0"),
        (lambda: hotswap.Muon(MODEL, momentum=1.0), "momentum=1.0.*below 1"),
        (lambda: hotswap.Muon(MODEL, betas=(0.9, 1.0)), "betas=1.0.*below 1"),
        (lambda: hotswap.Muon(MODEL, eps=-1e-8), "eps=-1e-08.*at least 0"),
    ],
)
def test_bad_settings(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        call()
    assert str(caught.value).endswith(".")


def test_default_lanes_on_a_cpu_are_of_muon_only_where_they_are_asked_for() -> None:
    network, vectors = made(perceptron), nn.ParameterList([nn.Parameter(torch.zeros(3))])
    assert {type(lane) for lane in hotswap.lanes(network)} == {AdamW}
    assert {type(lane) for lane in hotswap.lanes(network, muon=False)} == {AdamW}
    assert [type(lane) for lane in hotswap.lanes(network, muon=True)] == [hotswap.Muon] * 4
    assert {type(lane) for lane in hotswap.lanes(vectors, muon=True)} == {AdamW, SGD}
    for lanes in (hotswap.lanes(network), hotswap.lanes(network, muon=True), hotswap.lanes(vectors)):
        trains = [{p for group in lane.param_groups for p in group["params"]} for lane in lanes]
        assert all(one == trains[0] for one in trains)
        rates = [(type(lane), lane.param_groups[0]["lr"]) for lane in lanes]
        assert len(set(rates)) == len(rates)


def test_default_lanes_have_no_weight_decay_on_vectors() -> None:
    for lane in hotswap.lanes(made(perceptron)):
        decays = {p.ndim: group["weight_decay"] for group in lane.param_groups for p in group["params"]}
        assert decays[1] == 0
        assert decays[2] > 0


def test_muons_lanes_race_on_a_cpu() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, hotswap.lanes(model, muon=True), total_steps=700)
    batches = minibatches(100)
    first = loss_of(model, batches[0]).item()
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        race.step(loss)
        race.zero_grad()
    assert race.winner is not None
    assert loss_of(model, batches[0]).item() < first
