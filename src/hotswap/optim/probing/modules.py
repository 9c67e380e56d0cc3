"""The modules whose buffers a step has to look after: those the user has named, or found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, ClassVar, TypeVar

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

__all__ = ["BufferDict", "ModuleFinder", "ModuleInventory", "identical", "living"]

Thing = TypeVar("Thing")

BufferDict = dict[str, Tensor | None]
"""A module's own dictionary of buffers."""


class ModuleFinder:
    """Finds the outermost modules that hold any of the parameters, and adds the one that the user has named.

    A named module that holds all parameters is the only one, in a single process; modules elsewhere whose buffers the
    first gradient pass changes, like those of a frozen backbone, join it. Finding modules takes a walk over all living
    objects, which is done once. Afterwards torch calls `on_registration` when one of the modules is put into another,
    or one of the parameters into another module, and the search is repeated. Not so within a step: a closure may wrap
    the model in something new every time. Modules are held weakly.
    """

    _all: ClassVar[weakref.WeakSet[ModuleFinder]] = weakref.WeakSet()

    def __init__(self, named: nn.Module | None) -> None:
        self.named = named
        self.in_step = False
        """Whether a closure may be running."""
        self._roots: list[weakref.ref[nn.Module]] = []
        self._parameters: tuple[int, ...] = ()
        """The ids of the parameters that the roots were found for."""
        self._held: set[int] = set()
        """The ids of those parameters that are in a module."""
        self._elsewhere: list[tuple[weakref.ref[nn.Module], list[Any]]] = []
        """Modules with buffers that hold none of the parameters, until the first gradient pass is over."""
        self._inside: set[int] = set()
        """The ids of the roots and of all modules inside of them."""
        self._complete = False
        """Whether the named module holds all parameters, so that no other was searched for."""
        ModuleFinder._all.add(self)

    def inventory(self, parameters: list[Tensor], known: ModuleInventory) -> ModuleInventory:
        """What is inside of the modules now: `known`, if nothing has changed."""
        if tuple(map(id, parameters)) != self._parameters:
            self._search(parameters)
        roots = self._living_roots()
        if len(roots) < len(self._roots):  # wrappers that a closure made are gone, and their ids may be used again
            self._roots, self._inside = [weakref.ref(root) for root in roots], known.ids()
        if known.is_current(roots):
            return known
        inventory = ModuleInventory(roots, self._parameters)
        if not self._held <= inventory.parameters():  # a parameter was taken out of the modules
            self._search(parameters)
            inventory = ModuleInventory(self._living_roots(), self._parameters)
        self._inside = inventory.ids()
        return inventory

    def inventory_after_pass(self, parameters: list[Tensor], known: ModuleInventory) -> ModuleInventory:
        """The inventory after a gradient pass.

        After the first one it includes modules elsewhere whose buffers have changed, like those of a frozen backbone.
        """
        for ref, before in self._elsewhere:
            module = ref()
            if module is not None and _buffer_versions(module) != before:
                self._roots.append(ref)
        self._elsewhere = []
        return self.inventory(parameters, known)

    def _search(self, parameters: list[Tensor]) -> None:
        self._parameters = tuple(map(id, parameters))
        self._complete = self.named is not None and self._named_is_complete(self.named)
        alive = living_modules()
        roots = [self.named] if self.named is not None and self._complete else roots_of(parameters, alive)
        found = ModuleInventory(roots)
        self._held = found.parameters().intersection(self._parameters)
        inside = found.ids()
        self._elsewhere = [
            (weakref.ref(module), versions)
            for module in alive
            if id(module) not in inside and (versions := _buffer_versions(module))
        ]
        if self.named is not None and not any(self.named is module for module in roots):
            roots.append(self.named)
        self._roots = [weakref.ref(module) for module in roots]

    def _named_is_complete(self, named: nn.Module) -> bool:
        """Several processes may have a DistributedDataParallel around the module, which has to be found."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return False
        return ModuleInventory([named]).parameters().issuperset(self._parameters)

    def _living_roots(self) -> list[nn.Module]:
        return [module for ref in self._roots if (module := ref()) is not None]

    @classmethod
    def on_registration(cls, holder: nn.Module, _name: str, held: nn.Module | Tensor | None) -> None:
        """torch calls this whenever a module or a parameter is put into a module."""
        for finder in list(cls._all):
            if id(holder) in finder._inside or not (id(held) in finder._inside or id(held) in finder._held):
                continue
            if finder.in_step or finder._complete:
                finder._inside.add(id(holder))
                finder._roots.append(weakref.ref(holder))
            else:
                finder._parameters = ()  # search again


register_module_module_registration_hook(ModuleFinder.on_registration)
register_module_parameter_registration_hook(ModuleFinder.on_registration)


def living_modules() -> list[nn.Module]:
    """All modules that there are.

    The alternative, a hook that watches which modules are called, would become part of compiled modules, which would
    be compiled again.
    """
    return living(nn.Module)


def living(kind: type[Thing]) -> list[Thing]:
    """All objects of a kind that there are.

    The class of an object is asked for its type: some objects, when asked themselves, import half a library.
    """
    frozen = gc.get_freeze_count() > 0  # frozen objects are not listed
    if frozen:
        gc.unfreeze()
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
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
    """What a step has to look after inside of some modules; made again only when a module was exchanged."""

    def __init__(self, roots: list[nn.Module], moving: Iterable[int] = ()) -> None:
        self._roots, inside = [weakref.ref(root) for root in roots], list(_inside(roots))
        self._ids = set(map(id, inside))
        self._parents = [module._modules for module in inside if module._modules]
        self._leaves = [module._modules for module in inside if not module._modules]
        self._children = [child for children in self._parents for child in children.values()]
        self._parameters = [module._parameters for module in inside if module._parameters]
        self._buffers = [_buffers_of(module) for module in inside]
        self.recurrent = [module for module in inside if isinstance(module, nn.RNNBase)]
        self.sharded = [module for module in inside if isinstance(module, FSDPModule)]
        self.replicas = [module for module in inside if isinstance(module, DistributedDataParallel)]
        self.flattened = any(isinstance(module, FullyShardedDataParallel) for module in inside)
        self.constant = _constant_parameters(inside, set(moving))
        """Parameters that the optimizer does not move."""

    def is_current(self, roots: list[nn.Module]) -> bool:
        """Whether no module was put into these modules, or taken out of them, since."""
        known = [ref() for ref in self._roots]
        if len(roots) != len(known) or not all(map(is_, roots, known)) or any(self._leaves):
            return False
        children = [child for children in self._parents for child in children.values()]
        return len(children) == len(self._children) and all(map(is_, children, self._children))

    def ids(self) -> set[int]:
        """The ids of all modules."""
        return set(self._ids)

    def parameters(self) -> set[int]:
        """The ids of all parameters."""
        return {id(parameter) for held in self._parameters for parameter in held.values()}

    def buffers(self) -> list[BufferDict]:
        """The dictionaries that have buffers now."""
        return [buffers for buffers in self._buffers if buffers]

    def refuse_changed(self, versions: list[int]) -> None:
        """Raise for a closure that has changed parameters that the optimizer does not move, as momentum encoders do.

        `versions` are the version counters of `constant` before the gradient pass.
        """
        changed = {id(p) for p, old in zip(self.constant, versions, strict=True) if p._version != old}
        roots = [root for ref in self._roots if (root := ref()) is not None]
        names = [name for root in roots for name, p in root.named_parameters() if id(p) in changed]
        raise ClosureError(
            f"The closure changes parameters that the optimizer does not ({', '.join(names[:3])}), and would do so at "
            "every trial; change them after the step, or register them as buffers, which change once a step."
        )

    def private_dropout(self) -> bool:
        """Whether a recurrent network is on a GPU, whose masks cuDNN would draw from a generator of its own."""
        return any(map(_draws_privately, self.recurrent))


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
    """Which buffers a module has, and how often each was written to."""
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


def _draws_privately(module: nn.RNNBase) -> bool:
    on_gpu = any(weight.is_cuda for weight in module._flat_weights if weight is not None)
    return on_gpu and module.training and module.dropout > 0 and module.num_layers > 1
