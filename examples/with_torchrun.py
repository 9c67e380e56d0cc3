"""Several processes that go on after one of them was killed.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   # or gloo looks for the processes that were there before
    torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/with_torchrun.py checkpoint.pt

torchrun ends all processes when one dies, and starts them again. Each then goes on from the last checkpoint, which
holds the model, the optimizer with what its bandit has learned, and the epoch. The same works on several machines:
start it on each with `--nnodes` and `--rdzv-endpoint`, and a checkpoint that all of them see.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import hotswap
from hotswap.data import load_digits

BATCH = 64


def main(path: str = "checkpoint.pt", epochs: int | str = 8) -> None:
    checkpoint = Path(path)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    print(f"rank {rank} is process {os.getpid()}", flush=True)

    data = load_digits()
    x = torch.from_numpy(data.train_inputs()).to(device)
    y = torch.from_numpy(data.train_labels).to(device)
    model = DistributedDataParallel(hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0).to(device))
    optimizer = hotswap.HotSwapSGD(model)  # all processes take the same decision
    start = resume(checkpoint, model, optimizer, device)

    for epoch in range(start, int(epochs)):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for rows in order[: len(x) // (BATCH * size) * BATCH * size].view(-1, size, BATCH)[:, rank]:
            optimizer.step(lambda rows=rows: cross_entropy(model(x[rows]), y[rows]))
        if rank == 0:
            save(checkpoint, model, optimizer, epoch + 1)
            print(f"epoch {epoch + 1}: loss {cross_entropy(model.module(x), y).item():.6f}", flush=True)
        dist.barrier()  # nobody is an epoch ahead of the checkpoint
    dist.destroy_process_group()


def save(path: Path, model: torch.nn.Module, optimizer: hotswap.HotSwapSGD, epoch: int) -> None:
    """Whole or not at all: a process that is killed while it writes leaves the checkpoint before."""
    part = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, part)
    part.replace(path)


def resume(path: Path, model: torch.nn.Module, optimizer: hotswap.HotSwapSGD, device: torch.device) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"going on after epoch {state['epoch']}", flush=True)
    return int(state["epoch"])


if __name__ == "__main__":
    main(*sys.argv[1:])
