"""Which modules a step has to look after, found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from functools import cache
from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Parts", "Roots"]


class Roots:
    """The outermost modules that hold any of the parameters, and one more that the user may name.

    To look for them takes a walk over all objects that are alive, so it is done again only when the parameters are
    others, or when somebody has put one of the modules into another.
    """

    _known: ClassVar[weakref.WeakSet[nn.Module]] = weakref.WeakSet()
    _wrapped: ClassVar = 0

    def __init__(self, named: nn.Module | None) -> None:
        self.named = named
        self._found_for: tuple[int, ...] = ()
        self._modules: list[nn.Module] = []

    def of(self, parameters: list[Tensor]) -> list[nn.Module]:
        """They, as they are now."""
        state = (Roots._wrapped, *map(id, parameters))
        if state != self._found_for:
            self._found_for = state
            self._modules = roots_of(parameters)
            if self.named is not None and not any(self.named is module for module in self._modules):
                self._modules.append(self.named)
            Roots._known.update(self._modules)
        return self._modules

    @classmethod
    def notice(cls, _parent: nn.Module, _name: str, child: nn.Module | None) -> None:
        """torch calls this whenever a module is put into another."""
        if child is not None and cls._known and child in cls._known:
            cls._wrapped += 1


register_module_module_registration_hook(Roots.notice)


def roots_of(parameters: Iterable[Tensor]) -> list[nn.Module]:
    """The outermost modules that hold any of the parameters, of all that are alive.

    The optimizer is given parameters only, and a hook that watches which modules are called would be compiled into
    compiled ones, which then compile again. A module's type is asked of its class: some objects, when asked
    themselves, wake up and import half a library.
    """
    wanted = {id(parameter) for parameter in parameters}
    frozen = gc.get_freeze_count() > 0  # objects that were frozen are not listed
    if frozen:
        gc.unfreeze()
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    if frozen:
        gc.freeze()
    parents: dict[int, list[nn.Module]] = {}
    for module in alive:
        for child in (vars(module).get("_modules") or {}).values():
            parents.setdefault(id(child), []).append(module)
    waiting = [
        module
        for module in alive
        if any(id(held) in wanted for held in (vars(module).get("_parameters") or {}).values())
    ]
    roots: dict[int, nn.Module] = {}
    seen: set[int] = set()
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            above = parents.get(id(module), [])
            waiting += above
            if not above:
                roots[id(module)] = module
    return list(roots.values())


class Parts(NamedTuple):
    """What inside some modules a step has to look after."""

    buffers: list[dict[str, Tensor | None]]
    """Where buffers live."""
    sharded: list[FSDPModule]
    replicas: list[DistributedDataParallel]
    private_dropout: bool
    """Whether there is a recurrent network on a GPU whose dropout cuDNN would draw from a generator of its own."""

    @classmethod
    def of(cls, modules: list[nn.Module]) -> Parts:
        """One walk over them, in every step: models change."""
        buffers, special = [], []
        for part in _inside(modules):
            if part._buffers:
                buffers.append(part._buffers)
            if _is_special(type(part)):  # type: ignore[arg-type]  # types can be hashed
                special.append(part)
        return cls(
            buffers,
            [part for part in special if isinstance(part, FSDPModule)],
            [part for part in special if isinstance(part, DistributedDataParallel)],
            any(_draws_privately(part) for part in special if isinstance(part, nn.RNNBase)),
        )


def _inside(modules: list[nn.Module]) -> Iterator[nn.Module]:
    """The modules and all that are in them, each once; several times as fast as torch's walk, which makes up names."""
    waiting, seen = list(modules), set()
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting += [child for child in module._modules.values() if child is not None]


@cache
def _is_special(kind: type) -> bool:
    return issubclass(kind, (FSDPModule, DistributedDataParallel, nn.RNNBase))


def _draws_privately(module: nn.RNNBase) -> bool:
    on_gpu = any(weight.is_cuda for weight in module._flat_weights if weight is not None)
    return on_gpu and module.training and module.dropout > 0 and module.num_layers > 1
