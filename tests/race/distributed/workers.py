"""What each process does in the tests of races in several: tasks that get its rank, the world and a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap import HotSwapError
from hotswap.race import memory as memories

Batch = tuple[Tensor, Tensor]
STEPS = 100


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 17), nn.Tanh(), nn.Linear(17, 8), nn.Tanh(), nn.Linear(8, 3))


def with_norm_and_dropout() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def sharded() -> nn.Sequential:
    return shard(network())


def shard(net: nn.Sequential, mesh: Any = None) -> nn.Sequential:
    """One layer in a group of its own, the rest in the root's, which stays gathered after a forward pass."""
    fully_shard(net[2], mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def lanes(net: nn.Module) -> list[Optimizer]:
    return [
        AdamW(net.parameters(), lr=0.003),
        SGD(net.parameters(), lr=0.01, momentum=0.9),
        hotswap.Muon(net, lr=0.02),
    ]


def race_of(net: nn.Module, model: nn.Module | None = None, **settings: Any) -> hotswap.Race:
    return hotswap.Race(net, lanes(model or net), **{"total_steps": STEPS, "share": 0.5, **settings})


def minibatches(rank: int, count: int = STEPS) -> list[Batch]:
    """Every process has its own."""
    generator = torch.Generator().manual_seed(100 + rank)
    made = []
    for _ in range(count):
        x = torch.randn(16, 5, generator=generator)
        made.append((x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()))
    return made


def everybodys(world: int, count: int = STEPS) -> list[Batch]:
    """The minibatches of all processes, put together."""
    all_of = [minibatches(rank, count) for rank in range(world)]
    return [tuple(torch.cat([of[n][part] for of in all_of]) for part in (0, 1)) for n in range(count)]


def step(net: nn.Module, race: Optimizer, batch: Batch) -> Tensor:
    loss = cross_entropy(net(batch[0]), batch[1])
    loss.backward()
    race.step(loss)
    race.zero_grad()
    return loss.detach()


def whole(tensors: Any) -> Tensor:
    """All tensors in one vector, also where processes share them."""
    return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().float().flatten() for p in tensors])


def same_everywhere(vector: Tensor) -> bool:
    """Bit for bit, in all processes."""
    gathered = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, vector.contiguous())
    return all(torch.equal(other.view(torch.int32), vector.view(torch.int32)) for other in gathered)


def far(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


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


def raised(work: Callable[[], Any]) -> str:
    try:
        work()
    except (HotSwapError, ValueError, KeyError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def ddp(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """The same weights at every step, one collective at the end of a turn, and one every 50 steps after the race."""
    torch.manual_seed(rank)  # dropout differs between processes
    net = with_norm_and_dropout()
    race = race_of(net, total_steps=250)
    if rank == 1:  # what DistributedDataParallel sends at its start counts
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(3)
    replica = DistributedDataParallel(net)
    same, asked, turns, after = True, 0, 0, []
    for number, batch in enumerate(minibatches(rank, 250)):
        racing, ends = race.winner is None, race._contest.turn_step + 1 == race._contest.length
        with counted_collectives() as counted:
            step(replica, race, batch)
        if racing:
            turns += ends
            asked += counted[0]
        elif counted[0]:
            after.append(number - sum(lane.steps for lane in race._contest.lanes if lane is not race.winner))
        if number % 10 == 0:
            same = same and same_everywhere(whole(net.parameters()))
    race.eval()
    return {
        "same": same and same_everywhere(whole(net.parameters())),
        "turns": [turns, asked],
        "after": [later - one for one, later in pairwise(after)],
        "standings": str(race.standings()),
    }


def replicas(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Replicas do what one process does with all minibatches."""
    net, alone = network(), network()
    ours, theirs = race_of(net), race_of(alone, process_group=False)
    replica = DistributedDataParallel(net)
    for mine, all_of in zip(minibatches(rank), everybodys(world), strict=True):
        step(replica, ours, mine)
        step(alone, theirs, all_of)
    winners = [race.winner.name for race in (ours, theirs) if race.winner]
    return {"winners": winners, "distance": far(whole(net.parameters()), whole(alone.parameters()))}


def fsdp(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """A sharded model does what one process does, whoever looks at it, shards it late, or has replicas of shards."""
    pairs = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicas", "shards"))
    kinds: dict[str, Callable[[], tuple[nn.Module, hotswap.Race]]] = {
        "before": lambda: (net := sharded(), race_of(net)),
        "late": lambda: (net := network(), race_of(net), shard(net))[:2],
        "given": given,
        "hybrid": lambda: (net := shard(network(), pairs), race_of(net)),
    }
    found: dict[str, Any] = {}
    for name, make in kinds.items():
        (net, ours), alone = make(), network()
        theirs = race_of(alone, process_group=False)
        looked, averages, late = [], [], []
        for number, (mine, all_of) in enumerate(zip(minibatches(rank), everybodys(world), strict=True)):
            step(net, ours, mine)
            step(alone, theirs, all_of)
            if number % 7 == 0:
                looked.append(far(outputs(net, mine[0]), outputs(alone, mine[0])))
                ours.eval()
                theirs.eval()
                averages.append(far(outputs(net, mine[0]), outputs(alone, mine[0])))
                ours.train()
                theirs.train()
                late.append(far(outputs(net, mine[0]), outputs(alone, mine[0])))
        full = whole(net.parameters())
        found[name] = {
            "same": same_everywhere(full),
            "winners": [race.winner.name for race in (ours, theirs) if race.winner],
            "distance": far(full, whole(alone.parameters())),
            "looked": max(looked + averages + late),
            "sharded": all(
                isinstance(value, DTensor) or value.ndim == 0
                for state in ours.state.values()
                for value in state.values()
            ),
        }
    return found


def given() -> tuple[nn.Module, hotswap.Race]:
    """As Accelerate does it, which puts the sharded parameters into the race's groups alone."""
    net = network()
    race = race_of(net)
    race.param_groups[0]["params"] = [torch.empty(1) for _ in net.parameters()]
    shard(net)
    race.param_groups[0]["params"] = list(net.parameters())
    return net, race


@torch.no_grad()
def outputs(net: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = net(x)
    return out


def muon(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Muon under `fully_shard` takes the steps that it takes with whole matrices, where rows cannot be halved, too."""

    def odd() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 3)
        )

    alone, net = odd(), odd()
    fully_shard(net)
    ours, theirs = hotswap.Muon(net, lr=0.02), hotswap.Muon(alone, lr=0.02)
    for mine, all_of in zip(minibatches(rank, 30), everybodys(world, 30), strict=True):
        for model, optimizer, (x, y) in ((net, ours, mine), (alone, theirs, all_of)):
            cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    states = [value for state in ours.state.values() for value in state.values() if value.ndim]
    return {
        "distance": far(whole(net.parameters()), whole(alone.parameters())),
        "sharded": all(isinstance(value, DTensor) for value in states),
        "same": same_everywhere(whole(net.parameters())),
    }


def saved(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Each process saves its part with torch.save and goes on exactly, in the race and after it."""
    found = {}
    for name, make in {"fsdp": sharded, "ddp": network}.items():
        same = []
        for stop in (0, 7, 33, 90):
            ends = []
            batches = minibatches(rank)
            net = make()
            race = race_of(net)
            model = DistributedDataParallel(net) if name == "ddp" else net
            for batch in batches[:stop]:
                step(model, race, batch)
            file = folder / f"{name}-{stop}-{rank}.pt"
            torch.save({"race": race.state_dict()}, file)
            for batch in batches[stop:]:
                step(model, race, batch)
            ends.append(whole(net.parameters()))
            net = make()
            race = race_of(net)
            model = DistributedDataParallel(net) if name == "ddp" else net
            race.load_state_dict(torch.load(file, weights_only=True)["race"])
            for batch in batches[stop:]:
                step(model, race, batch)
            ends.append(whole(net.parameters()))
            same.append(torch.equal(*ends))
        found[name] = same
    return found


def judged(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """All processes hear the mean of what their judges say; one that raises ends the turn in all of them."""
    x, y = minibatches(7, 3)[rank]
    found: dict[str, Any] = {}
    for kind, make in {"fsdp": sharded, "ddp": network}.items():
        fails = [rank == 1 and kind == "ddp"]  # a sharded model's forward pass would wait for the process that fails
        net = make()

        def judge(model: nn.Module, fails: list[bool] = fails) -> float:
            if any(fails):
                raise ValueError("no data")
            return float(cross_entropy(model(x), y))

        race = race_of(net, judge=judge, share=0.9)
        model = DistributedDataParallel(net) if kind == "ddp" else net
        said = ""
        for batch in minibatches(rank):
            error = raised(lambda model=model, race=race, batch=batch: step(model, race, batch))
            if error:
                race.zero_grad()
                fails.clear()
                said = said + error
        full = whole(net.parameters())
        losses = [one.loss for one in race.standings()]
        found[kind] = {"said": said, "same": same_everywhere(full), "losses": losses, "won": race.winner is not None}
    return found


def odd_losses(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Losses that are not finite, or missing, in one process count in all of them."""
    found: dict[str, Any] = {}
    for kind in ("nan", "missing"):
        net = network()
        race = race_of(net)
        replica = DistributedDataParallel(net)
        for number, (x, y) in enumerate(minibatches(rank)):
            loss = cross_entropy(replica(x), y)
            loss.backward()
            odd = rank == 1 and 5 < number < 12
            race.step(loss * torch.nan if odd and kind == "nan" else None if odd else loss)
            race.zero_grad()
        found[kind] = {"same": same_everywhere(whole(net.parameters())), "standings": str(race.standings())}
    net = network()
    race = race_of(net)
    replica = DistributedDataParallel(net)
    errors = []
    for x, y in minibatches(rank, 30):
        cross_entropy(replica(x), y).backward()
        errors.append(raised(race.step))
        race.zero_grad()
        if errors[-1]:
            break
    step(replica, race, minibatches(rank, 1)[0])
    found["none"] = {"same": same_everywhere(whole(net.parameters())), "said": errors[-1], "step": race._contest.step}
    return found


def memory(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """All processes race as many lanes as the process with the least free memory can park."""
    net = network()
    race = race_of(net)
    replica = DistributedDataParallel(net)
    before, memories.free_memory = memories.free_memory, lambda: 0 if rank == 1 else 2**40
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in minibatches(rank):
            step(replica, race, batch)
    memories.free_memory = before
    told = [str(one.message) for one in said if "no room" in str(one.message)]
    return {
        "same": same_everywhere(whole(net.parameters())),
        "steps": [one.steps for one in race.standings()],
        "said": len(told),
    }


def flattened(rank: int, world: int, folder: Path) -> dict[str, Any]:
    net = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    race = hotswap.Race(net, [AdamW(net.parameters()), AdamW(net.parameters(), lr=0.1)], total_steps=STEPS)
    return {"refused": raised(lambda: step(net, race, minibatches(rank, 1)[0]))}


def checkpoints(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Distributed checkpoints before and after a race go on exactly; in a race they are refused in a sentence."""
    found: dict[str, Any] = {}
    for name, make in {"fsdp": sharded, "ddp": network}.items():
        for full in (False, True):
            options = StateDictOptions(full_state_dict=full)
            found[f"{name}, {full}"] = _through_checkpoints(rank, name, make, options, folder / f"{name}-{full}")
    net = sharded()
    race = hotswap.Race(net, [AdamW(net.parameters(), amsgrad=True)], total_steps=STEPS)
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    found["flattened"] = raised(lambda: get_state_dict(net, race, options=options))
    step(net, race, minibatches(rank, 1)[0])
    found["strange"] = raised(lambda: get_state_dict(net, race))
    return found


def _through_checkpoints(
    rank: int, name: str, make: Callable[[], nn.Sequential], options: StateDictOptions, folder: Path
) -> dict[str, Any]:
    def begun() -> tuple[nn.Sequential, nn.Module, hotswap.Race]:
        net = make()
        return net, DistributedDataParallel(net) if name == "ddp" else net, race_of(net)

    batches = minibatches(rank)
    net, model, race = begun()
    exact, unmoved, said = [], [], ""
    for number, batch in enumerate(batches):
        if number in (0, 10, 85):
            before = whole(net.parameters())
            try:
                weights, state = get_state_dict(net, race, options=options)
                dcp.save({"model": weights, "optimizer": state}, checkpoint_id=str(folder / str(number)))
            except KeyError as error:
                said = str(error)
            unmoved.append(torch.equal(before, whole(net.parameters())))
        step(model, race, batch)
    end = whole(net.parameters())
    for number in (0, 85):
        net, model, race = begun()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(2)
        weights, state = get_state_dict(net, race, options=options)
        loaded = {"model": weights, "optimizer": state}
        dcp.load(loaded, checkpoint_id=str(folder / str(number)))
        set_state_dict(
            net, race, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"], options=options
        )
        for batch in batches[number:]:
            step(model, race, batch)
        exact.append(torch.equal(end, whole(net.parameters())))
    return {"exact": exact, "unmoved": unmoved, "said": said}


TASKS: dict[str, Callable[[int, int, Path], Any]] = {
    "ddp": ddp,
    "replicas": replicas,
    "fsdp": fsdp,
    "muon": muon,
    "saved": saved,
    "judged": judged,
    "odd_losses": odd_losses,
    "memory": memory,
    "flattened": flattened,
    "checkpoints": checkpoints,
}
