"""What each process does in the tests of several: tasks that get its rank, the world and a folder for their files."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from hotswap import HotSwap, HotSwapSGD, LossError, NoSearch, UnsupportedError, accumulate, log_grid
from hotswap.optim.gradients import OldGradients
from tests.living import new_objects_only
from tests.searches.searches import Listening

Task = Callable[[int, int, Path], Any]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    parts = [nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)]
    return nn.Sequential(*parts)


def plain_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 17), nn.Tanh(), nn.Linear(17, 3))


def shard(net: nn.Sequential) -> None:
    """The last layer in a group of its own, the rest in the root's, which stays gathered after a forward."""
    fully_shard(net[2])
    fully_shard(net)


def minibatches(rank: int, count: int, *, uneven: bool = True) -> list[tuple[Tensor, Tensor]]:
    """Every process has its own; their sizes differ where `uneven`."""
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for number in range(count):
        size = 16 - (rank + number) % 5 if uneven else 16
        x = torch.randn(size, 5, generator=generator)
        made.append((x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()))
    return made


def whole(parameters: Any) -> Tensor:
    """All parameters in one vector, also where processes share them."""
    return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().flatten() for p in parameters])


def same_everywhere(vector: Tensor) -> bool:
    """Bit for bit, in all processes."""
    gathered = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, vector.contiguous())
    return all(torch.equal(other.view(torch.int32), vector.view(torch.int32)) for other in gathered)


@contextmanager
def counted_collectives() -> Iterator[list[int]]:
    """How many all-reduces hotswap asks for in this block."""
    counted = [0]
    real = dist.all_reduce

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted[0] += 1
        return real(*args, **kwargs)

    dist.all_reduce = counting  # type: ignore[assignment]
    try:
        yield counted
    finally:
        dist.all_reduce = real  # type: ignore[assignment]


OPTIMIZERS: dict[str, Callable[..., HotSwap]] = {
    "sgd": lambda parameters, **more: HotSwapSGD(parameters, momentum=0.5, **more),
    "adam": lambda parameters, **more: HotSwap(torch.optim.Adam(parameters), **more),
}


def seen(loss: Tensor, values: list[float]) -> Tensor:
    values.append(loss.item())
    return loss


def ddp(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """100 steps: the same weights everywhere, one collective a trial, and it learns."""
    torch.manual_seed(rank)  # dropout differs between processes
    replica = DistributedDataParallel(network())
    torch.manual_seed(10 + rank)
    optimizer = OPTIMIZERS["sgd"](replica.parameters())
    losses, collectives = [], []
    for x, y in minibatches(rank, 100):
        own: list[float] = []
        with counted_collectives() as counted:
            loss = optimizer.step(lambda x=x, y=y, own=own: seen(cross_entropy(replica(x), y).double(), own))
        assert loss.item() == own[0]  # and not what all of them have together
        losses.append(optimizer.last_step.loss_before)
        collectives.append((counted[0], len(own)))
    tracked = int(replica.module[1].num_batches_tracked)
    return {
        "same": same_everywhere(whole(replica.parameters())),
        "first": sum(losses[:20]) / 20,
        "last": sum(losses[-20:]) / 20,
        "collectives": collectives,
        "tracked": tracked,
        "losses": losses[:5],
    }


def raising(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """A trial that raises in the second process alone is infinite in both."""
    replica = DistributedDataParallel(plain_network())
    optimizer = HotSwapSGD(replica.parameters(), [1.0, 0.1, 0.01])
    first = whole(replica.parameters())

    def closure(x: Tensor, y: Tensor) -> Tensor:
        moved = (whole(replica.parameters()) - first).norm() > 0.3
        if rank == 1 and moved:
            raise ValueError("too far away")
        return cross_entropy(replica(x), y) * (0.5 if moved else 1.0)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x, y = minibatches(rank, 1)[0]
        optimizer.step(lambda: closure(x, y))
    return {
        "same": same_everywhere(whole(replica.parameters())),
        "trials": [[arm, math.isfinite(loss)] for arm, loss in optimizer.last_step.trials],
        "arm": optimizer.last_step.arm,
        "said": [str(warning.message) for warning in said],
    }


def ddp_buffers(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Buffers after a step are what DDP's own forward leaves: a trial does not change what is broadcast next.

    Also where the optimizer was given the model inside of the replica.
    """
    return {"equal": [_same_buffers(rank, named=named) for named in (False, True)]}


def _same_buffers(rank: int, *, named: bool) -> bool:
    replica, twin = DistributedDataParallel(network()), DistributedDataParallel(network())
    optimizer = HotSwapSGD(replica.module if named else replica.parameters())
    equal = True
    for x, y in minibatches(rank, 10):
        twin.module.load_state_dict(replica.module.state_dict())
        twin.require_forward_param_sync = True
        state = torch.get_rng_state()
        twin(x)
        torch.set_rng_state(state)
        optimizer.step(lambda x=x, y=y: cross_entropy(replica(x), y))
        pairs = zip(replica.module.buffers(), twin.module.buffers(), strict=True)
        equal = equal and all(torch.equal(a, b) for a, b in pairs)
    return equal


class Drifting(nn.Module):
    """A buffer that every forward changes, by data that differ between processes, and that decides the output."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(5, 3)
        self.register_buffer("shift", torch.zeros(()))
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.shift.item())
        scores: Tensor = self.linear(x) * (1 + self.shift)
        self.shift.mul_(0.5).add_(x.mean())
        return scores


def ddp_function(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """All evaluations of a step see the buffers that the gradient pass saw, which were those of the first process."""
    replica = DistributedDataParallel(Drifting())
    optimizer = HotSwapSGD(replica.parameters())
    seen = []
    for x, y in minibatches(rank, 8):
        replica.module.seen.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(replica(x), y))
        seen.append(sorted(set(replica.module.seen)))
    return {"seen": seen}


def beside(
    rank: int, world: int, count: int, shared: nn.Module, ours: HotSwap, alone: nn.Module, theirs: HotSwap
) -> Iterator[None]:
    """Steps of a shared model on this process's minibatches, each beside a step of one alone on those of all."""
    for each in zip(*(minibatches(r, count, uneven=False) for r in range(world)), strict=True):
        x, y = each[rank]
        all_x, all_y = (torch.cat(parts) for parts in zip(*each, strict=True))
        ours.step(lambda x=x, y=y: cross_entropy(shared(x), y))
        theirs.step(lambda x=all_x, y=all_y: cross_entropy(alone(x), y))
        yield


def fsdp(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """A sharded model does what one process would do with everything, and goes on from a distributed checkpoint."""
    found: dict[str, Any] = {}
    for name, build in OPTIMIZERS.items():
        alone, shared = plain_network(), sharded()
        ours, theirs = build(shared.parameters()), build(alone.parameters(), process_group=False)
        steps = beside(rank, world, 40, shared, ours, alone, theirs)
        arms = [ours.last_step.arm == theirs.last_step.arm for _ in steps]
        full, expected = whole(shared.parameters()), whole(alone.parameters())
        found[name] = {
            "same": same_everywhere(full),
            "arms": sum(arms) / len(arms),
            "distance": float((full - expected).norm() / expected.norm()),
            "resumed": _resumes(sharded, build, (shared, ours), minibatches(rank, 20), folder / name),
        }
    return found


SLOPED: dict[str, Callable[..., HotSwap]] = {
    "gradient": lambda p, **more: HotSwapSGD(p, momentum=0.5, weight_decay=0.01, search=Listening(), **more),
    "linear": lambda p, **more: HotSwap(torch.optim.Adam(p), search=Listening(), **more),
    "exact": lambda p, **more: HotSwap(
        torch.optim.SGD(p, lr=1.0), {"lr": log_grid(10, 1e-3, 9), "momentum": [0.0, 0.5]}, search=Listening(), **more
    ),
}


def slope(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """What the slope promises is the same in all processes, and what one process with everything is told."""
    kinds: dict[str, Callable[[], nn.Module]] = {
        "ddp": lambda: DistributedDataParallel(plain_network()),
        "fsdp": sharded,
        "hybrid": hybrid,
    }
    found: dict[str, Any] = {}
    for kind, make in kinds.items():
        for name, build in SLOPED.items():
            alone, shared = plain_network(), make()
            ours, theirs = build(shared.parameters()), build(alone.parameters(), process_group=False)
            for _ in beside(rank, world, 8, shared, ours, alone, theirs):
                pass
            told = torch.tensor(ours.search.told, dtype=torch.float64)
            expected = torch.tensor(theirs.search.told, dtype=torch.float64)
            found[f"{kind}, {name}"] = {
                "same": same_everywhere(told.view(torch.int32)),
                "trials": len(told),
                "right": told.shape == expected.shape and torch.allclose(told, expected, rtol=1e-3, atol=1e-7),
            }
    return found


def hybrid() -> nn.Module:
    """Sharded in pairs of processes, with a replica in each pair."""
    net = plain_network()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    fully_shard(net[2], mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def sharded() -> nn.Module:
    net = plain_network()
    shard(net)
    return net


def _saved(net: nn.Module, optimizer: HotSwap, folder: Path) -> None:
    weights, state = get_state_dict(net, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=str(folder))


def loaded(net: nn.Module, optimizer: HotSwap, folder: Path) -> None:
    """Go on from a distributed checkpoint."""
    weights, state = get_state_dict(net, optimizer)
    found = {"model": weights, "optimizer": state}
    dcp.load(found, checkpoint_id=str(folder))
    set_state_dict(net, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])


def _resumes(
    make: Callable[[], nn.Module],
    build: Callable[[Any], HotSwap],
    trained: tuple[nn.Module, HotSwap],
    batches: list[tuple[Tensor, Tensor]],
    folder: Path,
) -> bool:
    """Save, load into another model and optimizer, and compare what follows."""
    _saved(*trained, folder)
    other = make()
    again = build(other.parameters())
    loaded(other, again, folder)
    for x, y in batches:
        for module, its in (trained, (other, again)):
            its.step(lambda module=module, x=x, y=y: cross_entropy(module(x), y))
    return torch.equal(whole(trained[0].parameters()), whole(other.parameters()))


FEWER: dict[str, Callable[[Any], HotSwap]] = {
    "every third": lambda parameters: HotSwapSGD(parameters, [0.3, 0.1, 0.03], search_every=3),
    "untried": lambda parameters: HotSwap(torch.optim.Adam(parameters), {"lr": [0.03, 0.01]}, search=NoSearch()),
}


def fewer(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Steps without trials: one collective each, the same everywhere."""
    found: dict[str, Any] = {}
    for kind, make in (("ddp", lambda: DistributedDataParallel(plain_network())), ("fsdp", sharded)):
        for name, build in FEWER.items():
            net = make()
            optimizer = build(net.parameters())
            collectives = []
            for x, y in minibatches(rank, 20):
                with counted_collectives() as counted:
                    optimizer.step(lambda net=net, x=x, y=y: cross_entropy(net(x), y))
                if not optimizer.last_step.trials:
                    collectives.append(counted[0])
            resumed = _resumes(make, build, (net, optimizer), minibatches(rank, 10), folder / f"{kind}-{name}")
            found[f"{kind}-{name}"] = {
                "same": same_everywhere(whole(net.parameters())),
                "collectives": sorted(set(collectives)),
                "resumed": resumed,
            }
    return found


def flattened(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """torch's first way of sharding is refused."""
    shared = FullyShardedDataParallel(plain_network(), use_orig_params=True, device_id=torch.device("cpu"))
    ((x, y),) = minibatches(rank, 1)
    try:
        HotSwapSGD(shared.parameters()).step(lambda: cross_entropy(shared(x), y))
    except UnsupportedError as error:
        return {"refused": str(error)}
    return {"refused": ""}


def nan(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """A process whose loss is not a number: in a trial it spoils that trial everywhere, at the start the step."""
    replica = DistributedDataParallel(plain_network())
    optimizer = HotSwapSGD(replica.parameters())
    (x, y), *_ = minibatches(rank, 1)
    optimizer.step(lambda: cross_entropy(replica(x), y))
    before, calls = whole(replica.parameters()), [0]

    def spoiled() -> Tensor:
        calls[0] += 1
        factor = float("nan") if rank == 1 and calls[0] > 1 else 1.0
        return cross_entropy(replica(x), y) * factor

    optimizer.step(spoiled)
    stayed = optimizer.last_step.arm is None and torch.equal(before, whole(replica.parameters()))
    try:
        optimizer.step(lambda: cross_entropy(replica(x), y) * (float("nan") if rank == 1 else 1.0))
    except LossError as error:
        raised = str(error)
    optimizer.step(lambda: cross_entropy(replica(x), y))  # and it goes on
    return {"stayed": stayed, "raised": raised, "same": same_everywhere(whole(replica.parameters()))}


def accumulated(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Several minibatches a step, gradients exchanged once."""
    replica = DistributedDataParallel(plain_network())
    outer = nn.Sequential(replica)  # the replica may be somewhere inside
    optimizer = HotSwapSGD(replica.parameters())
    exchanged = [0]
    replica.register_comm_hook(exchanged, _counting_all_reduce)
    batches, counts = minibatches(rank, 40), []
    for number in range(0, 40, 4):
        exchanged[0] = 0
        module = outer if number % 8 else replica
        closure = accumulate(lambda b: cross_entropy(replica(b[0]), b[1]), batches[number : number + 4], module=module)
        optimizer.step(closure)
        counts.append(exchanged[0])
    return {"same": same_everywhere(whole(replica.parameters())), "exchanged": sorted(set(counts))}


def _counting_all_reduce(count, bucket):  # type: ignore[no-untyped-def]  # DDP does not understand quoted types
    """What DDP does by itself, counted; the model fits one bucket."""
    count[0] += 1
    return default_hooks.allreduce_hook(dist.group.WORLD, bucket)


def fsdp_accumulated(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """A sharded model's gradients are reduced once, after the last of several minibatches, and are those of all."""
    alone, shared = plain_network(), plain_network()
    fully_shard(shared[0])
    fully_shard(shared[2])  # the root itself is not sharded
    ours, theirs = HotSwapSGD(shared.parameters()), HotSwapSGD(alone.parameters(), process_group=False)
    reduced, counts = [0], []

    def count(_: Tensor) -> None:
        reduced[0] += 1

    shared[0].weight.register_post_accumulate_grad_hook(count)  # FSDP calls it when it has reduced
    batches = [minibatches(r, 40, uneven=False) for r in range(world)]
    for number in range(0, 40, 4):
        reduced[0] = 0
        few = batches[rank][number : number + 4]
        ours.step(accumulate(lambda b: cross_entropy(shared(b[0]), b[1]), few, module=shared))
        counts.append(reduced[0])
        everything = [batch for each in batches for batch in each[number : number + 4]]
        theirs.step(accumulate(lambda b: cross_entropy(alone(b[0]), b[1]), everything))
    full, expected = whole(shared.parameters()), whole(alone.parameters())
    return {
        "same": same_everywhere(full),
        "distance": float((full - expected).norm() / expected.norm()),
        "reduced": sorted(set(counts)),
        "refused": _refused(shared, ours, *batches[rank][:2]),
    }


def _refused(shared: nn.Module, optimizer: HotSwap, *batches: tuple[Tensor, Tensor]) -> str:
    """What a closure is told that calls backward on top of a gradient that was there before."""

    def backward(batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = cross_entropy(shared(batch[0]), batch[1])
        loss.backward()
        return loss

    try:
        optimizer.zero_grad()
        optimizer._trials._old = OldGradients()  # nothing is known of steps before
        backward(batches[0])
        optimizer.step(lambda: backward(batches[1]))
    except UnsupportedError as error:
        return str(error)
    return ""


def dead(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """One process dies in the middle of a step."""
    replica = DistributedDataParallel(plain_network())
    optimizer = HotSwapSGD(replica.parameters())
    for number, (x, y) in enumerate(minibatches(rank, 20)):

        def closure(x: Tensor = x, y: Tensor = y, number: int = number) -> Tensor:
            if rank == 1 and number == 5:
                os._exit(7)
            return cross_entropy(replica(x), y)

        optimizer.step(closure)
    return {}


TASKS: dict[str, Task] = {
    task.__name__: new_objects_only()(task)
    for task in (
        ddp,
        raising,
        ddp_buffers,
        ddp_function,
        fsdp,
        slope,
        fewer,
        flattened,
        nan,
        accumulated,
        fsdp_accumulated,
        dead,
    )
}
