"""A race with Accelerate, which adds up gradients of two minibatches: `python examples/with_accelerate.py`."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import hotswap
from hotswap.data import load_digits

EPOCHS = 30
torch.manual_seed(0)
data = load_digits()
train = TensorDataset(torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model, loader = accelerator.prepare(
    hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0), DataLoader(train, batch_size=32, shuffle=True)
)
race = hotswap.Race(model, total_steps=EPOCHS * -(-len(loader) // 2))
optimizer = accelerator.prepare(race)
for _ in range(EPOCHS):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step(loss)
            optimizer.zero_grad()
print(race.standings())
wrong = model(torch.from_numpy(data.test_inputs())).argmax(1) != torch.from_numpy(data.test_labels)
print(f"test error {wrong.float().mean():.1%}")
