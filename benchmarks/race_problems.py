"""Small problems of many kinds, on which the defaults of a race are chosen, and others on which they are confirmed.

    python -m benchmarks.race_problems
    python -m benchmarks.race_problems --export DIR

The first command prints the problems. A run of one takes seconds on one core. Each of the first half, on which defaults
are chosen, has a counterpart of its kind in the second half, with another network, size, loss and length.

The data are part of scikit-learn and of Python, or are made here. `--export` writes what was read to `DIR/data.npz`.
Where the variable RACE_PROBLEMS_DATA names this file, everything is read from there: a machine without scikit-learn, or
with another Python, then has the same problems.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid, silu

from hotswap.bench.workloads.base import (
    Batch,
    Measures,
    Task,
    in_evaluation,
    judged_by_loss,
    minibatches_of,
    seeded,
    shuffled,
)

__all__ = ["PROBLEMS", "Problem"]

Role = Literal["choosing", "confirming"]
Make = Callable[[int, str], Task]

MEASURED = 1000
"""How many training samples the training measure is of."""


class Problem(NamedTuple):
    """A problem by its function of a seed and a device; the seed decides first weights and the order of the data."""

    role: Role
    make: Make

    def __call__(self, seed: int, device: str = "cpu") -> Task:
        return self.make(seed, device)


PROBLEMS: dict[str, Problem] = {}


def _problem(role: Role) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PROBLEMS[make.__name__.removeprefix("_")] = Problem(role, make)
        return make

    return register


# --- data ---


@cache
def arrays() -> dict[str, NDArray[np.generic]]:
    """What is read from elsewhere: digits, breast cancer, and text."""
    exported = os.environ.get("RACE_PROBLEMS_DATA")
    if exported:
        with np.load(exported) as file:
            return dict(file)
    from sklearn import datasets  # noqa: PLC0415 - optional, and slow to import

    from hotswap.bench.workloads.text import sources  # noqa: PLC0415 - reads many files

    digits, cancer = datasets.load_digits(), datasets.load_breast_cancer()
    text, held_out = sources()
    return {
        "digits_x": digits.data.astype(np.uint8),
        "digits_y": digits.target.astype(np.int64),
        "cancer_x": cancer.data.astype(np.float32),
        "cancer_y": cancer.target.astype(np.int64),
        "text": np.frombuffer(text[:1_500_000], np.uint8),
        "held_out": np.frombuffer(held_out[:300_000], np.uint8),
    }


def _digits(classes: range = range(10), one_in: int = 4) -> tuple[Batch, Batch]:
    """Images with pixels between 0 and 1, and labels: most to train on, one in so many to validate."""
    x, y = torch.from_numpy(arrays()["digits_x"]).float() / 16, torch.from_numpy(arrays()["digits_y"])
    among = (y >= classes.start) & (y < classes.stop)
    x, y = x[among], y[among] - classes.start
    held_out = torch.arange(len(x)) % one_in == 0
    return (x[~held_out], y[~held_out]), (x[held_out], y[held_out])


def _text(*, held_out: bool) -> str:
    return arrays()["held_out" if held_out else "text"].tobytes().decode("ascii")


def _characters(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode("ascii")), dtype=torch.uint8).long()


@cache
def _words(size: int) -> tuple[Tensor, Tensor]:
    """The training text and the held-out text as numbers of their most frequent words; other words are left out."""
    train, held_out = (re.findall(r"[A-Za-z]{2,}", _text(held_out=held)) for held in (False, True))
    numbers = {word: number for number, (word, _) in enumerate(Counter(train).most_common(size))}
    found = (torch.tensor([numbers[word] for word in words if word in numbers]) for words in (train, held_out))
    train_words, held_out_words = found
    return train_words, held_out_words


def _generator(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _at(samples: Batch, device: str) -> Batch:
    return samples[0].to(device), samples[1].to(device)


def _task(
    model: nn.Module,
    steps: int,
    batch_size: int,
    seed: int,
    data: tuple[Batch, Batch],
    loss: Callable[[Tensor, Tensor], Tensor],
    shown: Callable[[Tensor], Tensor] = torch.clone,
) -> Task:
    """A task on two sets of samples; `loss` is that of each sample."""
    train, validation = data
    some = train[0][:MEASURED], train[1][:MEASURED]
    return judged_by_loss(model, steps, lambda: minibatches_of(*train, batch_size, seed), loss, some, validation, shown)


def _classification(
    model: nn.Module, steps: int, batch_size: int, seed: int, data: tuple[Batch, Batch], device: str
) -> Task:
    """A task whose loss is the cross-entropy."""
    model.to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y, reduction="none")

    return _task(model, steps, batch_size, seed, (_at(data[0], device), _at(data[1], device)), loss)


def _perceptron(sizes: list[int], activation: Callable[[], nn.Module]) -> nn.Sequential:
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


# --- physics-informed networks ---


def _slopes(values: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(values.sum(), x, create_graph=True)[0]


def _physics(
    model: nn.Module,
    steps: int,
    minibatches: Callable[[], Iterator[Batch]],
    loss: Callable[[Batch], Tensor],
    true: Batch,
) -> Task:
    """A task whose measures are the loss on a first minibatch, and the relative error against the true solution."""
    first = next(minibatches())

    def measure() -> Measures:
        with torch.enable_grad():
            train = loss(first).item()
        return Measures(train, ((model(true[0]) - true[1]).norm() / true[1].norm()).item())

    return Task(model, steps, minibatches, loss, in_evaluation(model, measure))


def _burgers_solution(points: Tensor, viscosity: float) -> Tensor:
    """The solution of Burgers' equation from -sin(πx) by Cole's and Hopf's integral."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite.hermgauss(120))
    x, t = points.double().split(1, dim=1)
    y = x - nodes * (4 * viscosity * t).sqrt()
    kernel = weights * torch.exp(-torch.cos(math.pi * y) / (2 * math.pi * viscosity))
    return (-(torch.sin(math.pi * y) * kernel).sum(1) / kernel.sum(1))[:, None].float()


@_problem("choosing")
def _burgers(seed: int, device: str) -> Task:
    """Burgers' equation: tanh, new points at every step."""
    viscosity = 0.03
    model = seeded(lambda: _perceptron([2, 40, 40, 40, 1], nn.Tanh), seed).to(device)

    def minibatches() -> Iterator[Batch]:
        numbers = _generator(seed)
        while True:
            inside, edge = torch.rand(256, 2, generator=numbers), torch.rand(96, 2, generator=numbers)
            inside[:, 0], edge[:, 0] = inside[:, 0] * 2 - 1, edge[:, 0] * 2 - 1
            edge[:48, 1], edge[48:, 0] = 0, edge[48:, 0].sign()
            value = torch.where(edge[:, 1] == 0, -torch.sin(math.pi * edge[:, 0]), 0.0)
            yield _at((inside, torch.cat([edge, value[:, None]], 1)), device)

    def loss(batch: Batch) -> Tensor:
        x, edge = batch[0].requires_grad_(), batch[1]
        u = model(x)
        slopes = _slopes(u, x)
        curvature = _slopes(slopes[:, 0], x)[:, 0]
        residual = slopes[:, 1] + u[:, 0] * slopes[:, 0] - viscosity * curvature
        return residual.square().mean() + (model(edge[:, :2]) - edge[:, 2:]).square().mean()

    grid = torch.cartesian_prod(torch.linspace(-1, 1, 65), torch.linspace(0.05, 1, 20))
    return _physics(model, 1500, minibatches, loss, _at((grid, _burgers_solution(grid, viscosity)), device))


class _Sine(nn.Module):
    """A network of sines, as physics and images are fitted with, with its customary first weights."""

    def __init__(self, width: int, depth: int, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency
        self.layers = nn.ModuleList([nn.Linear(2, width), *(nn.Linear(width, width) for _ in range(depth - 1))])
        self.head = nn.Linear(width, 1)
        for layer in self.layers[1:]:
            bound = math.sqrt(6 / width) / frequency
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(self.frequency * layer(x))
        found: Tensor = self.head(x)
        return found


@_problem("confirming")
def _helmholtz(seed: int, device: str) -> Task:
    """Helmholtz's equation in a square: sines, always the same points."""
    model = seeded(lambda: _Sine(32, 2, 4.0), seed).to(device)

    def solution(x: Tensor) -> Tensor:
        return torch.sin(math.pi * x[:, :1]) * torch.sin(2 * math.pi * x[:, 1:])

    side = torch.linspace(-1, 1, 24)
    inside = torch.cartesian_prod(side, side)
    along, across = torch.linspace(-1, 1, 32), torch.ones(32)
    edge = torch.cat(
        [torch.stack(pair, 1) for sign in (-1, 1) for pair in ((along, sign * across), (sign * across, along))]
    )
    points = _at((inside, edge), device)
    source = (1 - 5 * math.pi**2) * solution(points[0])

    def minibatches() -> Iterator[Batch]:
        while True:
            yield points

    def loss(batch: Batch) -> Tensor:
        x, edge = batch[0].detach().requires_grad_(), batch[1]
        u = model(x)
        slopes = _slopes(u, x)
        laplacian = _slopes(slopes[:, 0], x)[:, :1] + _slopes(slopes[:, 1], x)[:, 1:]
        return (laplacian + u - source).square().mean() / 100 + 10 * model(edge).square().mean()

    grid = torch.cartesian_prod(torch.linspace(-0.98, 0.98, 40), torch.linspace(-0.98, 0.98, 40)).to(device)
    return _physics(model, 1000, minibatches, loss, (grid, solution(grid)))


# --- embeddings ---


class _Factors(nn.Module):
    """A rating is a product of two embeddings, and biases."""

    def __init__(self, users: int, items: int, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for table in (self.users, self.items, self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        user, item = x.unbind(1)
        product = (self.users(user) * self.items(item)).sum(1)
        found: Tensor = product + self.user_bias(user)[:, 0] + self.item_bias(item)[:, 0]
        return found


@_problem("choosing")
def _ratings(seed: int, device: str) -> Task:
    """Ratings that users give to items, some of both far more often than others."""
    users, items, count = 500, 300, 40_000
    numbers = _generator(0)
    x = torch.stack([(torch.rand(count, generator=numbers) ** 2 * number).long() for number in (users, items)], 1)
    left, right = (torch.randn(number, 6, generator=numbers) for number in (users, items))
    y = (left[x[:, 0]] * right[x[:, 1]]).sum(1) / 6**0.5 + 0.5 * left[x[:, 0], 0] + right[x[:, 1], 1]
    y += 0.4 * torch.randn(count, generator=numbers)
    model = seeded(lambda: _Factors(users, items, 12), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (model(x) - y).square()
        return found

    data = _at((x[5000:], y[5000:]), device), _at((x[:5000], y[:5000]), device)
    return _task(model, 2000, 256, seed, data, loss)


class _Bag(nn.Module):
    """The mean of the embeddings of the words around predicts the word."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.embed(x).mean(1))
        return found


@_problem("choosing")
def _word_bags(seed: int, device: str) -> Task:
    """A word of Python's sources from the two before and the two after it."""
    words = 1000

    def samples(text: Tensor) -> Batch:
        windows = text.unfold(0, 5, 1)
        return windows[:, [0, 1, 3, 4]], windows[:, 2]

    train, held_out = _words(words)
    model = seeded(lambda: _Bag(words, 48), seed)
    return _classification(model, 1000, 256, seed, (samples(train), samples(held_out[:6000])), device)


class _Context(nn.Module):
    """Embeddings of words, and of words as the context of others; their product says how likely a pair is."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.word, self.context = nn.Embedding(words, width), nn.Embedding(words, width)
        nn.init.uniform_(self.word.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.context.weight)

    def forward(self, x: Tensor) -> Tensor:
        word, contexts = self.word(x[:, 0]), self.context(x[:, 1:])
        found: Tensor = (contexts @ word[:, :, None])[:, :, 0]
        return found


@_problem("confirming")
def _word_pairs(seed: int, device: str) -> Task:
    """Pairs of neighbouring words against drawn ones (negative sampling)."""
    words, negatives = 1500, 5

    def samples(text: Tensor, seed: int) -> Batch:
        pairs = torch.cat([torch.stack([text[:-away], text[away:]], 1) for away in (1, 2)])
        drawn = text[torch.randint(len(text), (len(pairs), negatives), generator=_generator(seed))]
        x = torch.cat([pairs, drawn], 1)
        return x[torch.randperm(len(x), generator=_generator(seed))], torch.ones(len(x), 1)

    train, held_out = _words(words)
    data = _at(samples(train, 1), device), _at(samples(held_out[:4000], 2), device)
    model = seeded(lambda: _Context(words, 32), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        scores: Tensor = model(x)
        return -logsigmoid(scores[:, 0]) - logsigmoid(-scores[:, 1:]).sum(1)

    return _task(model, 2500, 512, seed, data, loss)


# --- tables ---


@_problem("choosing")
def _small_table(seed: int, device: str) -> Task:
    """A noisy target of numbers and categories, with few rows that are seen 130 times."""
    numbers, count = _generator(0), 3800
    values, category = torch.rand(count, 8, generator=numbers), torch.randint(6, (count,), generator=numbers)
    y = torch.sin(math.pi * values[:, 0] * values[:, 1]) * 2 + 4 * (values[:, 2] - 0.5) ** 2 + values[:, 3]
    y += torch.randn(6, generator=numbers)[category] * (0.5 + values[:, 4])
    y = (y - y.mean()) / y.std() + 0.3 * torch.randn(count, generator=numbers)
    x = torch.cat([(values - 0.5) * 12**0.5, nn.functional.one_hot(category, 6).float()], 1)
    model = seeded(lambda: _perceptron([14, 96, 96, 1], nn.ReLU), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (model(x)[:, 0] - y).square()
        return found

    data = _at((x[:800], y[:800]), device), _at((x[800:], y[800:]), device)
    return _task(model, 1500, 64, seed, data, loss)


@_problem("confirming")
def _cancer(seed: int, device: str) -> Task:
    """Breast cancer, one third of the samples to train on, with dropout."""
    x, y = torch.from_numpy(arrays()["cancer_x"]), torch.from_numpy(arrays()["cancer_y"])
    trained = torch.arange(len(x)) % 3 == 0
    x = (x - x[trained].mean(0)) / x[trained].std(0)
    data = (x[trained], y[trained]), (x[~trained], y[~trained])

    def build() -> nn.Module:
        return nn.Sequential(
            nn.Linear(30, 64),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(64, 32),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(32, 2),
        )

    return _classification(seeded(build, seed), 300, 32, seed, data, device)


# --- graphs ---


def _blocks(
    nodes: int, classes: int, within: float, between: float, width: int, clarity: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and edges `(2, E)` of a stochastic block model; a node has so many neighbours of either kind."""
    numbers = _generator(0)
    labels = torch.randint(classes, (nodes,), generator=numbers)
    same = labels[:, None] == labels[None, :]
    chance = torch.where(same, within * classes / nodes, between / nodes * classes / (classes - 1))
    upper = (torch.rand(nodes, nodes, generator=numbers) < chance).triu(1)
    features = torch.randn(classes, width, generator=numbers)[labels] * clarity
    features += torch.randn(nodes, width, generator=numbers)
    return features, labels, (upper | upper.T).nonzero().T


class _Gcn(nn.Module):
    """Two graph convolutions, each a mean over neighbours that is weighted by their degrees."""

    def __init__(self, features: Tensor, edges: Tensor, width: int, classes: int) -> None:
        super().__init__()
        loops = torch.cat([edges, torch.arange(len(features)).expand(2, -1)], 1)
        weight = torch.bincount(loops[0]).float().rsqrt()[loops].prod(0)
        adjacency = torch.zeros(len(features), len(features))
        adjacency[loops[0], loops[1]] = weight
        self.features, self.adjacency = nn.Buffer(features), nn.Buffer(adjacency)
        self.first, self.second = nn.Linear(features.shape[1], width), nn.Linear(width, classes)
        self.dropout = nn.Dropout(0.5)

    def forward(self, nodes: Tensor) -> Tensor:
        hidden = self.dropout(torch.relu(self.adjacency @ self.first(self.dropout(self.features))))
        scores: Tensor = self.adjacency[nodes] @ self.second(hidden)
        return scores


@_problem("choosing")
def _graph(seed: int, device: str) -> Task:
    """A graph convolutional network on 20 labelled nodes of each class, all at every step."""
    features, labels, edges = _blocks(1000, 5, 5.0, 4.0, 32, 0.25)
    nodes = torch.arange(len(labels))
    known = torch.cat([nodes[labels == label][:20] for label in range(5)])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[known] = False
    data = (known, labels[known]), (nodes[rest], labels[rest])
    model = seeded(lambda: _Gcn(features, edges, 64, 5), seed)
    return _classification(model, 300, len(known), seed, data, device)


class _Sage(nn.Module):
    """Two layers that join a node with the mean of neighbours drawn for it, and those with theirs."""

    def __init__(self, features: Tensor, drawn: int, width: int, classes: int) -> None:
        super().__init__()
        self.features, self.drawn = nn.Buffer(features), drawn
        self.first, self.second = nn.Linear(2 * features.shape[1], width), nn.Linear(2 * width, width)
        self.norm, self.head, self.dropout = nn.LayerNorm(width), nn.Linear(width, classes), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """`x`: the node, its neighbours, and then those of each of them in turn."""
        found, k = self.dropout(self.features[x]), self.drawn
        nodes, further = found[:, : 1 + k], found[:, 1 + k :].unflatten(1, (k, k))
        around = torch.cat([nodes[:, 1:].mean(1, keepdim=True), further.mean(2)], 1)
        hidden = torch.relu(self.first(torch.cat([nodes, around], 2)))
        joined = self.second(torch.cat([hidden[:, 0], hidden[:, 1:].mean(1)], 1))
        scores: Tensor = self.head(self.dropout(torch.relu(self.norm(joined))))
        return scores


@_problem("confirming")
def _sampled_graph(seed: int, device: str) -> Task:
    """GraphSAGE: minibatches of nodes with four drawn neighbours each."""
    features, labels, edges = _blocks(3000, 8, 8.0, 6.0, 24, 0.4)
    degrees, k = torch.bincount(edges[0], minlength=len(labels)).clamp(min=1), 4
    starts = degrees.cumsum(0) - degrees

    def neighbours(nodes: Tensor, numbers: Generator) -> Tensor:
        drawn = (torch.rand(*nodes.shape, k, generator=numbers) * degrees[nodes][..., None]).long()
        return edges[1][(starts[nodes][..., None] + drawn).clamp(max=edges.shape[1] - 1)]

    def samples(nodes: Tensor, numbers: Generator) -> Batch:
        near = neighbours(nodes, numbers)
        far = neighbours(near, numbers)
        return _at((torch.cat([nodes[:, None], near, far.flatten(1)], 1), labels[nodes]), device)

    def minibatches() -> Iterator[Batch]:
        numbers = _generator(seed)
        for rows in shuffled(1000, 64, seed):
            yield samples(rows, numbers)

    model = seeded(lambda: _Sage(features, k, 64, 8), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y, reduction="none")

    fixed = [samples(nodes, _generator(1)) for nodes in (torch.arange(1000), torch.arange(1000, 3000))]
    return judged_by_loss(model, 800, minibatches, loss, *fixed)


# --- diffusion and autoencoders: random numbers of a sample are drawn with it ---


def _with_draws(
    x: Tensor, make: Callable[[Tensor, Generator], Batch], batch_size: int, seed: int, device: str
) -> Iterator[Batch]:
    """Minibatches of what is made of samples and a generator."""
    numbers = _generator(seed)
    for rows in shuffled(len(x), batch_size, seed):
        yield _at(make(x[rows], numbers), device)


def _diffused(x: Tensor, numbers: Generator) -> Batch:
    """Noised samples with their times, and the noise."""
    time = torch.rand(len(x), 1, generator=numbers)
    noise = torch.randn(x.shape, generator=numbers)
    angle = math.pi / 2 * (0.02 + 0.96 * time)
    return torch.cat([angle.cos() * x + angle.sin() * noise, time], 1), noise


class _Denoiser(nn.Module):
    """A residual network of noised samples and waves of the time."""

    def __init__(self, inputs: int, width: int, depth: int, *, norm: bool) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(2.0 ** torch.arange(6) * math.pi)
        self.first = nn.Linear(inputs + 12, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width) if norm else nn.Identity(),
                nn.Linear(width, width),
                nn.SiLU(),
                nn.Linear(width, width),
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, inputs)

    def forward(self, x: Tensor) -> Tensor:
        waves = x[:, -1:] * self.frequencies
        hidden = self.first(torch.cat([x[:, :-1], waves.sin(), waves.cos()], 1))
        for block in self.blocks:
            hidden = hidden + block(silu(hidden))
        found: Tensor = self.head(hidden)
        return found


def _diffusion(
    model: nn.Module, steps: int, batch_size: int, seed: int, x: Tensor, validation: Tensor, device: str
) -> Task:
    """A task that predicts the noise; what is measured has noise of its own that never changes."""
    model.to(device)

    def loss(x: Tensor, noise: Tensor) -> Tensor:
        found: Tensor = (model(x) - noise).square().mean(1)
        return found

    fixed = [_at(_diffused(samples, _generator(1)), device) for samples in (x[:MEASURED], validation)]
    return judged_by_loss(model, steps, lambda: _with_draws(x, _diffused, batch_size, seed, device), loss, *fixed)


@_problem("choosing")
def _diffused_digits(seed: int, device: str) -> Task:
    """Denoising of digits."""
    (x, _), (validation, _) = _digits()
    model = seeded(lambda: _Denoiser(64, 192, 2, norm=False), seed)
    return _diffusion(model, 1500, 128, seed, x * 2 - 1, validation.repeat(4, 1) * 2 - 1, device)


@_problem("confirming")
def _diffused_spiral(seed: int, device: str) -> Task:
    """Denoising of points of a spiral in the plane."""
    numbers = _generator(0)
    turn = torch.rand(12_000, generator=numbers).sqrt() * 3 * math.pi
    points = torch.stack([turn.cos(), turn.sin()], 1) * turn[:, None] / (2 * math.pi)
    points += 0.03 * torch.randn(points.shape, generator=numbers)
    model = seeded(lambda: _Denoiser(2, 64, 3, norm=True), seed)
    return _diffusion(model, 3000, 256, seed, points[4000:], points[:4000], device)


def _autoencoder_task(
    model: nn.Module,
    latent: int,
    steps: int,
    batch_size: int,
    seed: int,
    device: str,
    distance: Callable[[Tensor, Tensor], Tensor],
) -> Task:
    """A variational autoencoder of digits: the distance to what is rebuilt, and the divergence of the code."""
    model.to(device)
    (x, _), (validation, _) = _digits()

    def draw(x: Tensor, numbers: Generator) -> Batch:
        return x, torch.randn(len(x), latent, generator=numbers)

    def loss(x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = model.encoder(x).chunk(2, dim=1)
        rebuilt = model.decoder(mean + noise * (log_variance / 2).exp())
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
        return distance(rebuilt, x) + divergence

    fixed = [_at(draw(samples, _generator(1)), device) for samples in (x[:MEASURED], validation)]
    return judged_by_loss(model, steps, lambda: _with_draws(x, draw, batch_size, seed, device), loss, *fixed)


@_problem("choosing")
def _autoencoded_digits(seed: int, device: str) -> Task:
    """Perceptrons, pixels as probabilities."""

    def build() -> nn.Module:
        encoder, decoder = _perceptron([64, 128, 64, 16], nn.ReLU), _perceptron([8, 64, 128, 64], nn.ReLU)
        return nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def distance(rebuilt: Tensor, x: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(rebuilt, x, reduction="none").sum(1)

    return _autoencoder_task(seeded(build, seed), 8, 2000, 64, seed, device, distance)


@_problem("confirming")
def _autoencoded_images(seed: int, device: str) -> Task:
    """Convolutions with batch norm, squared distances."""

    def build() -> nn.Module:
        encoder = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            *(nn.Conv2d(1, 16, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(16), nn.SiLU()),
            *(nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(32), nn.SiLU()),
            *(nn.Flatten(), nn.Linear(128, 20)),
        )
        decoder = nn.Sequential(
            *(nn.Linear(10, 128), nn.Unflatten(1, (32, 2, 2))),
            *(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.SiLU()),
            *(nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Flatten()),
        )
        return nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def distance(rebuilt: Tensor, x: Tensor) -> Tensor:
        return (rebuilt - x).square().sum(1) / (2 * 0.1**2)

    return _autoencoder_task(seeded(build, seed), 10, 1000, 128, seed, device, distance)


# --- sequences ---


class _Recurrent(nn.Module):
    """A GRU with an embedding or a linear layer before it, and a linear layer after it."""

    def __init__(self, first: nn.Module, width: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.first, self.head = first, nn.Linear(width, outputs)
        self.net = nn.GRU(width, width, layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.net(self.first(x))[0])
        return found


def _windows(series: Tensor, length: int, every: int) -> Batch:
    """Windows, and the same ones a step later."""
    windows = series.unfold(0, length + 1, every)
    windows = windows.movedim(-1, 1)
    return windows[:, :-1], windows[:, 1:]


@_problem("choosing")
def _gru_text(seed: int, device: str) -> Task:
    """The next character of Python's sources."""
    train, held_out = _characters(_text(held_out=False)), _characters(_text(held_out=True))
    data = _at(_windows(train[:400_000], 32, 16), device), _at(_windows(held_out[:32_000], 32, 32), device)
    model = seeded(lambda: _Recurrent(nn.Embedding(128, 96), 96, 1, 128), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x).transpose(1, 2), y, reduction="none").mean(1)

    return _task(model, 600, 32, seed, data, loss)


@cache
def _chaos(count: int, noise: float) -> Tensor:
    """Lorenz's weather `(count, 3)`, in steps of 0.05, with noise."""
    state, found = np.array([1.0, 1.0, 1.0]), []
    for step in range(10 * count + 1000):
        x, y, z = state
        state = state + 0.005 * np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
        if step >= 1000 and step % 10 == 0:
            found.append(state)
    series = torch.tensor(np.array(found)).float()
    series = (series - series.mean(0)) / series.std(0)
    return series + noise * torch.randn(series.shape, generator=_generator(0))


def _forecast(model: nn.Module, steps: int, batch_size: int, seed: int, data: tuple[Batch, Batch], device: str) -> Task:
    model.to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (model(x) - y).square().flatten(1).mean(1)
        return found

    return _task(model, steps, batch_size, seed, (_at(data[0], device), _at(data[1], device)), loss)


@_problem("confirming")
def _gru_weather(seed: int, device: str) -> Task:
    """The next state of a chaotic system of which one coordinate is seen; two layers."""
    series = _chaos(8000, 0.03)
    data = []
    for part in (series[:6000], series[6000:]):
        x, y = _windows(part, 24, 4)
        data.append((x[:, :, :1], y))
    model = seeded(lambda: _Recurrent(nn.Linear(1, 48), 48, 2, 3), seed)
    return _forecast(model, 700, 32, seed, (data[0], data[1]), device)


class _Transformer(nn.Module):
    """Layers of attention between a first layer and a head, with learned positions."""

    def __init__(
        self,
        first: nn.Module,
        width: int,
        layers: int,
        length: int,
        head: nn.Module,
        *,
        causal: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.first, self.head = first, head
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout, nn.GELU(), batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        mask = nn.Transformer.generate_square_subsequent_mask(length) if causal else None
        self.mask = nn.Buffer(mask) if mask is not None else None

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(self.first(x) + self.positions, mask=self.mask))
        return found


@_problem("choosing")
def _transformer_weather(seed: int, device: str) -> Task:
    """The state of a chaotic system eight steps ahead, from three noisy coordinates."""
    series, ahead = _chaos(8000, 0.05), 8
    x, y = series[:-ahead].unfold(0, 16, 3).movedim(-1, 1), series[ahead:].unfold(0, 16, 3).movedim(-1, 1)
    data = (x[:1900], y[:1900]), (x[2000:], y[2000:])
    model = seeded(lambda: _Transformer(nn.Linear(3, 48), 48, 2, 16, nn.Linear(48, 3), causal=True), seed)
    return _forecast(model, 800, 48, seed, data, device)


# --- images and fine-tuning ---


class _Patches(nn.Module):
    """Patches of 2x2 pixels of images of 8x8, flat."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)


class _Mean(nn.Module):
    """The mean over positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


@_problem("confirming")
def _vision_transformer(seed: int, device: str) -> Task:
    """A transformer on digits."""

    def build() -> nn.Module:
        first, head = nn.Sequential(_Patches(), nn.Linear(4, 48)), nn.Sequential(_Mean(), nn.Linear(48, 10))
        return _Transformer(first, 48, 2, 16, head, causal=False, dropout=0.1)

    return _classification(seeded(build, seed), 500, 64, seed, _digits(one_in=3), device)


def _pretrained(task: Task) -> dict[str, Tensor]:
    """The weights after the task with AdamW; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(task.model.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, task.steps)
        for batch in islice(task.minibatches(), task.steps):
            optimizer.zero_grad()
            task.loss(batch).backward()
            optimizer.step()
            schedule.step()
    return deepcopy(task.model.state_dict())


def _convolutions(classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *(nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 48, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.Conv2d(48, 48, 3, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, classes)),
    )


@cache
def _pretrained_convolutions() -> dict[str, Tensor]:
    model = seeded(lambda: _convolutions(5), 0)
    return _pretrained(_classification(model, 200, 64, 0, _digits(range(5)), "cpu"))


@_problem("choosing")
def _tuned_convolutions(seed: int, device: str) -> Task:
    """Convolutions that know five digits, tuned on 120 images of the other five."""
    model = seeded(lambda: _convolutions(5), seed)
    known = {name: value for name, value in _pretrained_convolutions().items() if not name.startswith("14.")}
    model.load_state_dict(known, strict=False)
    (x, y), validation = _digits(range(5, 10), one_in=2)
    return _classification(model, 300, 24, seed, ((x[:120], y[:120]), validation), device)


def _masked(x: Tensor, numbers: Generator) -> Batch:
    """Images of which about half of the patches are hidden, and whole."""
    hidden = torch.rand(len(x), 4, 4, generator=numbers) < 0.5
    pixels = hidden.repeat_interleave(2, 1).repeat_interleave(2, 2).flatten(1)
    return torch.where(pixels, -1.0, x), x


def _patch_transformer(head: nn.Module) -> nn.Module:
    return _Transformer(nn.Sequential(_Patches(), nn.Linear(4, 64)), 64, 2, 16, head, causal=False, dropout=0.1)


@cache
def _pretrained_transformer() -> dict[str, Tensor]:
    """Pretrained as a masked autoencoder."""
    model, cut, (x, _) = seeded(lambda: _patch_transformer(nn.Linear(64, 4)), 0), _Patches(), _digits()[0]

    def loss(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = (model(x) - cut(y)).square().flatten(1).mean(1)
        return found

    return _pretrained(judged_by_loss(model, 500, lambda: _with_draws(x, _masked, 64, 0, "cpu"), loss, (x, x), (x, x)))


@_problem("confirming")
def _tuned_transformer(seed: int, device: str) -> Task:
    """A transformer that has rebuilt hidden patches of digits, tuned to classify 200 of them."""
    model = seeded(lambda: _patch_transformer(nn.Sequential(_Mean(), nn.Linear(64, 10))), seed)
    known = {name: value for name, value in _pretrained_transformer().items() if not name.startswith("head.")}
    model.load_state_dict(known, strict=False)
    (x, y), validation = _digits(one_in=3)
    return _classification(model, 400, 16, seed, ((x[:200], y[:200]), validation), device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--export", type=Path, metavar="DIR", help="write what was read to DIR/data.npz")
    folder = parser.parse_args().export
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / "data.npz", **arrays())
        print(f"Set RACE_PROBLEMS_DATA={folder / 'data.npz'}")
        return
    for name, problem in PROBLEMS.items():
        print(f"{name:22} {problem.role:11} {problem.make.__doc__}")


if __name__ == "__main__":
    main()
