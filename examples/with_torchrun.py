"""Two processes race, and go on exactly after one of them was killed.

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   # or gloo looks for the processes that were there before
torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/with_torchrun.py checkpoint.pt 20
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.data import load_digits

path, epochs, batch = sys.argv[1], int(sys.argv[2]), 16
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = load_digits()
x, y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
model = torch.nn.parallel.DistributedDataParallel(hotswap.networks.multilayer_perceptron((64, 32, 10), seed=0))
steps = len(x) // (batch * size)  # of an epoch
optimizer = hotswap.Race(model, total_steps=epochs * steps)
if os.path.exists(path):  # one state for each process, since each has losses of its own
    optimizer.load_state_dict(torch.load(path, weights_only=True)[rank])
print(f"rank {rank} is process {os.getpid()}, after epoch {optimizer.steps // steps}", flush=True)
for epoch in range(optimizer.steps // steps, epochs):
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
    for rows in order[: steps * batch * size].view(steps, size, batch)[:, rank]:
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step(loss)
        optimizer.zero_grad()
    dist.all_gather_object(states := [None] * size, optimizer.state_dict())
    if rank == 0:
        torch.save(states, f"{path}.part")
        os.replace(f"{path}.part", path)  # whole or not at all
        print(f"epoch {epoch + 1}: loss {loss.item():.6f}", flush=True)
