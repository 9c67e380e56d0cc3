"""Which modules a step has to look after, found from the parameters alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from hotswap.errors import ClosureError

__all__ = ["Owner", "Parts", "Roots", "same"]

Owner = dict[str, Tensor | None]
"""Where a module's buffers live."""


class Roots:
    """The outermost modules that hold any of the parameters, and one more that the user may name.

    To look for them takes a walk over all objects that are alive, so it is done once. Afterwards torch tells when one
    of the modules is put into another, or one of the parameters into another module, and they are looked for again.
    Not so within a step: a closure may well wrap the model every time, in something new. Modules are held weakly.
    """

    _all: ClassVar[weakref.WeakSet[Roots]] = weakref.WeakSet()

    def __init__(self, named: nn.Module | None) -> None:
        self.named = named
        self._modules: list[weakref.ref[nn.Module]] = []
        self._parameters: tuple[int, ...] = ()
        self._housed: set[int] = set()
        self._elsewhere: list[tuple[weakref.ref[nn.Module], list[Any]]] = []
        """Modules with buffers that hold none of the parameters, until the first gradient pass is over."""
        self._inside: set[int] = set()
        self.in_step = False
        Roots._all.add(self)

    def parts(self, parameters: list[Tensor], known: Parts) -> Parts:
        """What is inside them, as things are now: `known`, if nothing has changed."""
        if tuple(map(id, parameters)) != self._parameters:
            self._search(parameters)
        roots = self._alive()
        if len(roots) < len(self._modules):  # wrappers that a closure made, and their ids, are gone
            self._modules, self._inside = [weakref.ref(root) for root in roots], known.inside()
        if known.is_current(roots):
            return known
        parts = Parts(roots, self._parameters)
        if not self._housed <= parts.parameters():  # one was taken out
            self._search(parameters)
            parts = Parts(self._alive(), self._parameters)
        self._inside = parts.inside()
        return parts

    def adopt(self) -> None:
        """After the first gradient pass: modules elsewhere whose buffers it has changed, like a frozen backbone's."""
        for ref, before in self._elsewhere:
            module = ref()
            if module is not None and _buffer_versions(module) != before:
                self._modules.append(ref)
        self._elsewhere = []

    def _search(self, parameters: list[Tensor]) -> None:
        alive = modules_alive()
        found = roots_of(parameters, alive)
        self._parameters = tuple(map(id, parameters))
        known = Parts(found)
        self._housed = known.parameters().intersection(self._parameters)
        inside = known.inside()
        self._elsewhere = [
            (weakref.ref(module), versions)
            for module in alive
            if id(module) not in inside and (versions := _buffer_versions(module))
        ]
        if self.named is not None and not any(self.named is module for module in found):
            found.append(self.named)
        self._modules = [weakref.ref(module) for module in found]

    def _alive(self) -> list[nn.Module]:
        return [module for ref in self._modules if (module := ref()) is not None]

    @classmethod
    def notice(cls, holder: nn.Module, _name: str, held: nn.Module | Tensor | None) -> None:
        """torch calls this whenever a module or a parameter is put into a module."""
        for roots in list(cls._all):
            if id(holder) in roots._inside or not (id(held) in roots._inside or id(held) in roots._housed):
                continue
            if roots.in_step:
                roots._inside.add(id(holder))
                roots._modules.append(weakref.ref(holder))
            else:
                roots._parameters = ()


register_module_module_registration_hook(Roots.notice)
register_module_parameter_registration_hook(Roots.notice)


def modules_alive() -> list[nn.Module]:
    """All modules that there are.

    The optimizer is given parameters only, and a hook that watches which modules are called would be compiled into
    compiled ones, which then compile again. A module's type is asked of its class: some objects, when asked
    themselves, wake up and import half a library.
    """
    frozen = gc.get_freeze_count() > 0  # objects that were frozen are not listed
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


class Parts:
    """What a step has to look after inside some modules; walked through again only when something was exchanged."""

    def __init__(self, roots: list[nn.Module], moving: Iterable[int] = ()) -> None:
        self._roots, inside = [weakref.ref(root) for root in roots], list(_inside(roots))
        self._ids = set(map(id, inside))
        self._holders = [module._modules for module in inside if module._modules]
        self._leaves = [module._modules for module in inside if not module._modules]
        self._children = self._held()
        self._parameters = [module._parameters for module in inside if module._parameters]
        self.places = [_buffers_of(module) for module in inside]
        self._recurrent = [module for module in inside if isinstance(module, nn.RNNBase)]
        self.sharded = [module for module in inside if isinstance(module, FSDPModule)]
        self.replicas = [module for module in inside if isinstance(module, DistributedDataParallel)]
        self.flattened = any(isinstance(module, FullyShardedDataParallel) for module in inside)
        self._still = _still(inside, set(moving))
        self._versions: list[int] = []

    def _held(self) -> list[nn.Module | None]:
        return [child for holder in self._holders for child in holder.values()]

    def is_current(self, roots: list[nn.Module]) -> bool:
        """Whether nothing was put into the modules, or taken out of them, since."""
        return (
            same(roots, [ref() for ref in self._roots]) and not any(self._leaves) and same(self._held(), self._children)
        )

    def inside(self) -> set[int]:
        """The ids of all modules."""
        return set(self._ids)

    def parameters(self) -> set[int]:
        """The ids of all parameters."""
        return {id(parameter) for held in self._parameters for parameter in held.values()}

    def look_at_still(self) -> None:
        """Before the gradient pass: which versions there are of parameters that the optimizer does not move."""
        self._versions = [parameter._version for parameter in self._still]

    def refuse_changed(self) -> None:
        """After it: a forward that moves them, as momentum encoders do, would do so at every trial."""
        if self._versions == [parameter._version for parameter in self._still]:
            return
        changed = {id(p) for p, old in zip(self._still, self._versions, strict=True) if p._version != old}
        roots = [root for ref in self._roots if (root := ref()) is not None]
        names = [name for root in roots for name, p in root.named_parameters() if id(p) in changed]
        raise ClosureError(
            f"The closure changes parameters that the optimizer does not ({', '.join(names[:3])}), and would do so at "
            "every trial; change them after the step, or register them as buffers, which change once a step."
        )

    def buffers(self) -> list[Owner]:
        """Where buffers are."""
        return [place for place in self.places if place]

    def private_dropout(self) -> bool:
        """Whether a recurrent network is on a GPU, whose masks cuDNN would draw from a generator of its own."""
        return any(map(_draws_privately, self._recurrent))


def _still(modules: list[nn.Module], moving: set[int]) -> list[Tensor]:
    """The parameters that stay where they are, as far as the optimizer is concerned.

    Not those of embeddings with a `max_norm`: their forward writes to them, but the second time nothing new.
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


def _buffers_of(module: nn.Module) -> Owner:
    """A scripted module hands out its buffers, but not the place where they live."""
    return dict(module.named_buffers(recurse=False)) if isinstance(module, torch.jit.ScriptModule) else module._buffers


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
