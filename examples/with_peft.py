"""Lanes of adapters: a trained network learns to read upside down, by LoRA: `python examples/with_peft.py`."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits

EPOCHS, BATCH = 20, 32


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = hotswap.Race(model, total_steps=EPOCHS * len(x.split(BATCH)))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
    print(optimizer.standings())


torch.manual_seed(0)
data = load_digits()
x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
train(model, x, y)
adapted = get_peft_model(model, LoraConfig(r=8, target_modules=["0", "2"]))
train(adapted, x.flip(1), y)
adapted.print_trainable_parameters()
wrong = adapted(torch.from_numpy(data.test_inputs()).flip(1)).argmax(1) != torch.from_numpy(data.test_labels)
print(f"test error {wrong.float().mean():.1%}")
