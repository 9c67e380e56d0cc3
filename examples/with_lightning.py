"""Train a small classifier with Lightning and no learning rate: `python examples/with_lightning.py`."""

from __future__ import annotations

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import hotswap
from hotswap.data import load_digits
from hotswap.integrations.lightning import HotSwapModule


class Digits(HotSwapModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return hotswap.HotSwapSGD(self)


def main() -> None:
    torch.manual_seed(0)
    data = load_digits()
    train = TensorDataset(torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels))
    module = Digits()
    trainer = Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
    module.eval()
    with torch.no_grad():
        guessed = module.net(torch.from_numpy(data.test_inputs())).argmax(1)
    wrong = (guessed != torch.from_numpy(data.test_labels)).double().mean().item()
    print(f"test error {wrong:.1%}")


if __name__ == "__main__":
    main()
