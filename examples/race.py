"""Train a small classifier without choosing an optimizer or a rate: `python examples/race.py`."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits

EPOCHS, BATCH = 30, 64


def main() -> None:
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
    model = hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0)
    optimizer = hotswap.Race(model, total_steps=EPOCHS * len(x.split(BATCH)))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    print(optimizer.standings())
    wrong = model(torch.from_numpy(data.test_inputs())).argmax(1) != torch.from_numpy(data.test_labels)
    print(f"test error {wrong.float().mean():.1%}")


if __name__ == "__main__":
    main()
