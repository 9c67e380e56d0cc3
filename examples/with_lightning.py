"""A race in Lightning: `python examples/with_lightning.py`."""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import hotswap
from hotswap.data import load_digits
from hotswap.integrations.lightning import RaceCallback


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        wrong = self.net(batch[0]).argmax(1) != batch[1]
        self.log("test error", wrong.float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return hotswap.Race(self, total_steps=self.trainer.estimated_stepping_batches)


torch.manual_seed(0)
data = load_digits()
train = TensorDataset(torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels))
test = TensorDataset(torch.from_numpy(data.test_inputs()), torch.from_numpy(data.test_labels))
trainer = Trainer(max_epochs=15, accelerator="cpu", logger=False, callbacks=[RaceCallback()])
trainer.fit(Digits(), DataLoader(train, batch_size=64, shuffle=True), DataLoader(test, batch_size=512))
print(trainer.optimizers[0].standings(), trainer.callback_metrics["test error"], sep="\n")
