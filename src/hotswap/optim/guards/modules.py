"""Which modules a step has to look after, found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Parts", "Roots", "same"]


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


class Parts:
    """What a step has to look after inside some modules; walked through again only when something was exchanged."""

    def __init__(self, roots: list[nn.Module]) -> None:
        self._roots, inside = list(roots), list(_inside(roots))
        self._holders = [module._modules for module in inside]
        self._children = self._held()
        self._buffers = [module._buffers for module in inside]
        self._recurrent = [module for module in inside if isinstance(module, nn.RNNBase)]
        self.sharded = [module for module in inside if isinstance(module, FSDPModule)]
        self.replicas = [module for module in inside if isinstance(module, DistributedDataParallel)]

    def _held(self) -> list[nn.Module | None]:
        return [child for holder in self._holders for child in holder.values()]

    def is_current(self, roots: list[nn.Module]) -> bool:
        """Whether nothing was put into the modules, or taken out of them, since."""
        return same(roots, self._roots) and same(self._held(), self._children)

    def buffers(self) -> list[dict[str, Tensor | None]]:
        """Where buffers live."""
        return [held for held in self._buffers if held]

    def private_dropout(self) -> bool:
        """Whether a recurrent network is on a GPU, whose masks cuDNN would draw from a generator of its own."""
        return any(map(_draws_privately, self._recurrent))


def same(things: list[Any], others: list[Any]) -> bool:
    """Not only equal."""
    return len(things) == len(others) and all(map(is_, things, others))


def _inside(modules: list[nn.Module]) -> Iterator[nn.Module]:
    """The modules and all that are in them, each once."""
    waiting, seen = list(modules), set()
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting += [child for child in module._modules.values() if child is not None]


def _draws_privately(module: nn.RNNBase) -> bool:
    on_gpu = any(weight.is_cuda for weight in module._flat_weights if weight is not None)
    return on_gpu and module.training and module.dropout > 0 and module.num_layers > 1
