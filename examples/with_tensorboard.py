"""See the lanes of a race in TensorBoard: `python examples/with_tensorboard.py`, then `tensorboard --logdir runs`."""

from __future__ import annotations

import sys

import torch
from torch.nn.functional import cross_entropy
from torch.utils.tensorboard import SummaryWriter

import hotswap
from hotswap.data import load_digits
from hotswap.integrations.tensorboard import TensorBoardLog


def main(folder: str = "runs") -> None:
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
    model = hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0)
    optimizer = hotswap.Race(model, total_steps=700)
    with SummaryWriter(folder) as writer:
        log = TensorBoardLog(writer, optimizer)
        for _ in range(700):
            rows = torch.randint(len(x), (64,))
            loss = cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
            log()
    print(f"logged to {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
