"""The same race through Ray Train: `python examples/with_ray_train.py FOLDER 20`, where all nodes see FOLDER."""

import os
import sys
import tempfile

import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits


def train_digits(settings: dict[str, int]) -> None:
    rank, size, batch = train.get_context().get_world_rank(), train.get_context().get_world_size(), 16
    data = load_digits()
    x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
    model = prepare_model(hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0))
    steps = len(x) // (batch * size)
    optimizer = hotswap.Race(model, total_steps=settings["epochs"] * steps)
    if checkpoint := train.get_checkpoint():
        optimizer.load_state_dict(torch.load(f"{checkpoint.to_directory()}/{rank}.pt", weights_only=True))
    for epoch in range(optimizer.steps // steps, settings["epochs"]):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for rows in order[: steps * batch * size].view(steps, size, batch)[:, rank]:
            (loss := cross_entropy(model(x[rows]), y[rows])).backward()
            optimizer.step(loss)
            optimizer.zero_grad()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(optimizer.state_dict(), f"{folder}/{rank}.pt")
            train.report({"loss": loss.item()}, checkpoint=train.Checkpoint.from_directory(folder))


again = train.RunConfig(storage_path=os.path.abspath(sys.argv[1]), failure_config=train.FailureConfig(max_failures=3))
workers, loop = train.ScalingConfig(num_workers=2), {"epochs": int(sys.argv[2])}
result = TorchTrainer(train_digits, train_loop_config=loop, scaling_config=workers, run_config=again).fit()
print(f"epoch {sys.argv[2]}: loss {result.metrics['loss']:.6f}")
