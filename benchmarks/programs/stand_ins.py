"""What the data diffs put in the place of downloads and of missing packages."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, TensorDataset

from hotswap.bench.workloads.text import sources
from hotswap.data import load


def mnist(count: int, *, train: bool = True, size: int = 28, mean: float = 0.0, std: float = 1.0) -> TensorDataset:
    """The first images of MNIST with their labels: `(1, size, size)`, pixels between 0 and 1, then normalized."""
    data = load("mnist")
    images, labels = (data.train_inputs, data.train_labels) if train else (data.test_inputs, data.test_labels)
    pixels = torch.from_numpy(images(flat=False))[:count].reshape(-1, 1, 28, 28)
    if size != 28:
        pixels = interpolate(pixels, size, mode="bilinear")
    return TensorDataset((pixels - mean) / std, torch.from_numpy(labels)[:count])


def nothing(*_: Any, **__: Any) -> None:
    """In the place of torchvision's `save_image`."""


def text(count: int, *, held_out: bool = False) -> str:
    """The first characters of Python's own sources."""
    return sources()[held_out][:count].decode("ascii")


def characters(file: Path, count: int, *, held_out: bool = False) -> Path:
    """A file in which each character of Python's own sources is a word."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = text(count, held_out=held_out).splitlines()
    file.write_text("\n".join(" ".join(line.replace(" ", "_")) for line in lines), encoding="utf-8")
    return file


def corpus(folder: str, train: int, held_out: int) -> str:
    """The files `train.txt`, `valid.txt` and `test.txt` in a folder."""
    for name in ("train", "valid", "test"):
        characters(Path(folder) / f"{name}.txt", train if name == "train" else held_out, held_out=name != "train")
    return folder


def distance(samples: Tensor, real: Tensor) -> float:
    """The energy distance of two sets of images at a quarter of their width and height."""
    a, b = (interpolate(images, scale_factor=0.25, mode="area").flatten(1) for images in (samples, real))
    return float(2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean())


class CartPole:
    """A pole on a cart (Barto, Sutton and Anderson 1983), with the calls of gymnasium's `CartPole-v1`."""

    spec = SimpleNamespace(reward_threshold=475.0)

    def __init__(self) -> None:
        self.random, self.state, self.steps = random.Random(0), [0.0] * 4, 0

    def reset(self, seed: int | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        if seed is not None:
            self.random.seed(seed)
        self.state, self.steps = [self.random.uniform(-0.05, 0.05) for _ in range(4)], 0
        return np.array(self.state, dtype=np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        x, speed, angle, turn = self.state
        push = 10.0 if action == 1 else -10.0
        sine, cosine = math.sin(angle), math.cos(angle)
        moved = (push + 0.05 * turn**2 * sine) / 1.1  # pole 0.1 kg and 0.5 m to its centre, with a cart of 1 kg
        bend = (9.8 * sine - cosine * moved) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = moved - 0.05 * bend * cosine / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend]
        self.steps += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12)
        return np.array(self.state, dtype=np.float32), 1.0, fallen, self.steps >= 500, {}


class Pictures(Dataset[dict[str, Tensor]]):
    """Images of MNIST, with what scripts of Transformers ask of a data set."""

    column_names = ("image",)

    def __init__(self, count: int, *, train: bool) -> None:
        self.images = mnist(count, train=train, mean=0.5, std=0.5).tensors[0]

    def set_transform(self, transform: object) -> None:
        """Leave the images as they are."""

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"pixel_values": self.images[index]}


def fetch_mnist(*_: object, **__: object) -> SimpleNamespace:
    """In the place of scikit-learn's `fetch_openml`: images as rows of pixels up to 255, and digits."""
    images, labels = mnist(20_000).tensors
    return SimpleNamespace(data=(255 * images.flatten(1)).numpy(), target=labels.numpy())


def moons(count: int) -> TensorDataset:
    """Points on two half circles, with a little noise."""
    numbers = torch.Generator().manual_seed(42)
    angle, noise = math.pi * torch.rand(count, generator=numbers), 0.03 * torch.randn(count, 2, generator=numbers)
    upper = torch.stack([angle.cos(), angle.sin()], 1)
    points = torch.where((torch.arange(count) % 2 == 0)[:, None], upper, torch.tensor([1.0, 0.5]) - upper) + noise
    return TensorDataset((points + 0.3) * torch.tensor([2.0, 3.0]) - 1)
