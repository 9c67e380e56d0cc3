"""The same as with_torchrun.py through Ray Train, on one machine or many: `python examples/with_ray_train.py FOLDER`.

Ray Train starts the processes, and starts them again when one dies (`max_failures`), on other nodes if need be; what
was last reported is the checkpoint from which they go on. FOLDER must be one that all nodes see.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits

BATCH = 64


def train_digits(settings: dict[str, int]) -> None:
    context = train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    print(f"rank {rank} is process {os.getpid()}", flush=True)
    data = load_digits()
    device = train.torch.get_device()
    x = torch.from_numpy(data.train_inputs()).to(device)
    y = torch.from_numpy(data.train_labels).to(device)
    model = prepare_model(hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0))
    optimizer = hotswap.HotSwapSGD(model)  # all processes take the same decision
    start = resume(model, optimizer)
    for epoch in range(start, settings["epochs"]):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for rows in order[: len(x) // (BATCH * size) * BATCH * size].view(-1, size, BATCH)[:, rank]:
            optimizer.step(lambda rows=rows: cross_entropy(model(x[rows]), y[rows]))
        report(model, optimizer, epoch + 1, cross_entropy(model.module(x), y).item())


def resume(model: torch.nn.Module, optimizer: hotswap.HotSwapSGD) -> int:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder) / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def report(model: torch.nn.Module, optimizer: hotswap.HotSwapSGD, epoch: int, loss: float) -> None:
    """Every process reports; the first one's checkpoint is kept."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if train.get_context().get_world_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(folder) / "state.pt")
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report({"loss": loss, "epoch": epoch}, checkpoint=checkpoint)


def main(folder: str = "digits", epochs: int | str = 8) -> None:
    ray.init(ignore_reinit_error=True)
    result = TorchTrainer(
        train_digits,
        train_loop_config={"epochs": int(epochs)},
        scaling_config=train.ScalingConfig(num_workers=2, use_gpu=torch.cuda.is_available()),
        run_config=train.RunConfig(
            name="digits", storage_path=str(Path(folder).resolve()), failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    print(f"epoch {result.metrics['epoch']}: loss {result.metrics['loss']:.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
