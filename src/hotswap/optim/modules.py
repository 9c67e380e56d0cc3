"""The modules whose buffers a step has to look after: those the user has named, or found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from hotswap.errors import ClosureError

__all__ = ["BufferDict", "ModuleFinder", "ModuleInventory", "identical"]

BufferDict = dict[str, Tensor | None]
"""A module's own dictionary of buffers."""


class ModuleFinder:
    """Finds the outermost modules that hold any of the parameters, and adds the one that the user has named.

    A named module that holds all parameters is the only one, in a single process; modules elsewhere whose buffers the
    first gradient pass changes, like those of a frozen backbone, join it. Finding modules takes one walk over all
    living objects, at the first step. The walk is repeated where torch says that one of the modules was put into
    another, or one of the parameters into another module, between two steps. Modules are held weakly.
    """

    _all: ClassVar[weakref.WeakSet[ModuleFinder]] = weakref.WeakSet()

    def __init__(self, named: nn.Module | None) -> None:
        self.named = named
        self.in_step = False
        """Whether a closure may be running; it may wrap the model in something new every time."""
        self.known = ModuleInventory([])
        self._parameters: tuple[int, ...] = ()
        """The ids of the parameters that the modules were found for."""
        self._elsewhere: list[tuple[weakref.ref[nn.Module], list[Any]]] = []
        """Modules with buffers that hold none of the parameters, until the first gradient pass is over."""
        self._wrapped = False
        ModuleFinder._all.add(self)

    def inventory(self, parameters: list[Tensor], *, after_pass: bool = False) -> ModuleInventory:
        """The contents of the modules now; after the first gradient pass with modules elsewhere whose buffers it has
        changed."""
        if after_pass and self._elsewhere:
            self._add_changed()
        ids = tuple(map(id, parameters))
        if self._wrapped or ids != self._parameters:
            self._wrapped, self._parameters = False, ids
            self.known = self._search(parameters)
        elif not self.known.is_current():
            before, self.known = self.known, ModuleInventory(self.known.roots(), ids)
            if not before.moving <= self.known.moving:  # a parameter was taken out of the modules
                self.known = self._search(parameters)
        return self.known

    def _add_changed(self) -> None:
        """Add modules elsewhere whose buffers have changed since the modules were searched for."""
        alive = [(module, before) for ref, before in self._elsewhere if (module := ref()) is not None]
        changed = [module for module, before in alive if _buffer_versions(module) != before]
        self._elsewhere = []
        if changed:
            self.known = ModuleInventory([*self.known.roots(), *changed], self._parameters)

    def _search(self, parameters: list[Tensor]) -> ModuleInventory:
        alive = living_modules()
        if self.named is not None and self._is_complete(self.named):
            roots = [self.named]
        else:
            roots = roots_of(parameters, alive)
        inside = ModuleInventory(roots).ids
        self._elsewhere = [
            (weakref.ref(module), versions)
            for module in alive
            if id(module) not in inside and (versions := _buffer_versions(module))
        ]
        if self.named is not None and not any(self.named is module for module in roots):
            roots.append(self.named)
        return ModuleInventory(roots, self._parameters)

    def _is_complete(self, named: nn.Module) -> bool:
        """Whether the named module holds all parameters.

        In several processes a DistributedDataParallel may be around it, which has to be found.
        """
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return False
        return {id(parameter) for parameter in named.parameters()}.issuperset(self._parameters)

    @classmethod
    def on_registration(cls, holder: nn.Module, _name: str, held: nn.Module | Tensor | None) -> None:
        """torch calls this whenever a module or a parameter is put into a module."""
        for finder in list(cls._all):
            known = finder.known.ids
            if not finder.in_step and id(holder) not in known and (id(held) in known or id(held) in finder._parameters):
                finder._wrapped = True


register_module_module_registration_hook(ModuleFinder.on_registration)
register_module_parameter_registration_hook(ModuleFinder.on_registration)


def living_modules() -> list[nn.Module]:
    """All modules that there are.

    The alternative, a hook that watches which modules are called, would become part of compiled modules, which would
    be compiled again. The class of an object is asked for its type: some objects, when asked themselves, import half a
    library.
    """
    frozen = gc.get_freeze_count() > 0  # frozen objects are not listed
    if frozen:
        gc.unfreeze()
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]
    if frozen:
        gc.freeze()
    return alive


def roots_of(parameters: Iterable[Tensor], alive: list[nn.Module]) -> list[nn.Module]:
    """The outermost of these modules that hold any of the parameters."""
    wanted = {id(parameter) for parameter in parameters}
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


class ModuleInventory:
    """Everything that a step has to look after inside of some modules; made again when a module was exchanged.

    `moving` are the ids of the parameters that the optimizer moves.
    """

    def __init__(self, roots: list[nn.Module], moving: Iterable[int] = ()) -> None:
        self._roots, inside = [weakref.ref(root) for root in roots], list(_inside(roots))
        self._leaves = [module._modules for module in inside if not module._modules]
        self._parents = [(module._modules, tuple(module._modules.values())) for module in inside if module._modules]
        self._buffers = [_buffers_of(module) for module in inside]
        self.ids = set(map(id, inside))
        held = {id(parameter) for module in inside for parameter in module._parameters.values()}
        self.moving = held.intersection(moving)
        """The ids of those parameters inside that the optimizer moves."""
        self.recurrent = [module for module in inside if isinstance(module, nn.RNNBase)]
        self.sharded = [module for module in inside if isinstance(module, FSDPModule)]
        self.replicas = [module for module in inside if isinstance(module, DistributedDataParallel)]
        self.flattened = any(isinstance(module, FullyShardedDataParallel) for module in inside)
        self.constant = _constant_parameters(inside, self.moving)
        """Parameters that the optimizer does not move."""

    def is_current(self) -> bool:
        """Whether these modules still exist, and no module was put into them or taken out of them since."""
        for children, before in self._parents:
            if len(children) != len(before) or not all(map(is_, children.values(), before)):
                return False
        for ref in self._roots:  # in every step, and an expression would be a call
            if ref() is None:
                return False
        return not any(self._leaves)

    def roots(self) -> list[nn.Module]:
        """The outermost modules that still exist."""
        return [module for ref in self._roots if (module := ref()) is not None]

    def buffers(self) -> list[BufferDict]:
        """The dictionaries that have buffers now."""
        return list(filter(None, self._buffers))

    def refuse_changed(self, versions: list[int]) -> None:
        """Raise for a closure that has changed parameters that the optimizer does not move, as momentum encoders do.

        `versions` are the version counters of `constant` before the gradient pass.
        """
        changed = {id(p) for p, old in zip(self.constant, versions, strict=True) if p._version != old}
        names = [name for root in self.roots() for name, p in root.named_parameters() if id(p) in changed]
        raise ClosureError(
            f"The closure changes parameters that the optimizer does not ({', '.join(names[:3])}), and would do so at "
            "every trial; change them after the step, or register them as buffers, which change once a step."
        )

    def private_dropout(self) -> bool:
        """Whether a recurrent network is on a GPU, whose masks cuDNN would draw from a generator of its own."""
        return any(map(_draws_privately, self.recurrent))


def _draws_privately(module: nn.RNNBase) -> bool:
    on_gpu = any(weight.is_cuda for weight in module._flat_weights if weight is not None)
    return on_gpu and module.training and module.dropout > 0 and module.num_layers > 1


def _constant_parameters(modules: list[nn.Module], moving: set[int]) -> list[Tensor]:
    """The parameters that the optimizer does not move.

    Not those of embeddings with a `max_norm`: their forward writes to them, but the second time it changes nothing.
    """
    return [
        parameter
        for module in modules
        if getattr(module, "max_norm", None) is None
        for parameter in module._parameters.values()
        if parameter is not None
        and not (id(parameter) in moving and parameter.requires_grad)
        and not is_lazy(parameter)
        and not parameter.is_inference()
    ]


def _buffer_versions(module: nn.Module) -> list[Any]:
    """The buffers of a module, and how often each was written to."""
    buffers = (vars(module).get("_buffers") or {}).values()
    return [(id(buffer), buffer._version) for buffer in buffers if buffer is not None and not buffer.is_inference()]


def _buffers_of(module: nn.Module) -> BufferDict:
    """A module's own dictionary of buffers; of a scripted module, which hides it, a copy."""
    return dict(module.named_buffers(recurse=False)) if isinstance(module, torch.jit.ScriptModule) else module._buffers


def identical(things: list[Any], others: list[Any]) -> bool:
    """Whether two lists hold the same objects, in the same order."""
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
