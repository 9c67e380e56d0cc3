"""The paper's algorithm, a bandit and a line search on each minibatch: `python examples/paper.py`."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits

STEPS, BATCH = 600, 64


def main() -> None:
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
    model = hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0)
    optimizer = hotswap.HotSwapSGD(model)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,))
        optimizer.step(lambda rows=rows: cross_entropy(model(x[rows]), y[rows]))
    print(optimizer.statistics())
    wrong = model(torch.from_numpy(data.test_inputs())).argmax(1) != torch.from_numpy(data.test_labels)
    print(f"test error {wrong.float().mean():.1%}")


if __name__ == "__main__":
    main()
