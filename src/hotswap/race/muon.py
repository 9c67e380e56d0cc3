"""Muon: momentum whose matrices are orthogonalized, beside AdamW for everything that is not a matrix.

References: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks" (the method); Liu et al. 2025,
"Muon is scalable for LLM training" (the factor 0.2 * sqrt(max(rows, columns)), with which rates and weight decays of
AdamW suit Muon).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from hotswap.errors import SettingError
from hotswap.race.orthogonal import Batch, Orthogonalizer, Shape
from hotswap.race.processes import gathered, is_sharded, part, part_of

__all__ = ["Muon", "told", "trained"]

STACKED = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3}
"""The number of matrices that a recurrent layer stacks in one parameter: one for each gate."""


class Work(NamedTuple):
    """The plan of a step for the parameters of a group."""

    key: list[tuple[int, bool]]
    """The parameters that have gradients, and whether these are sparse."""
    matrices: list[Tensor]
    """The parameters whose momentum is orthogonalized, in the order of the batches."""
    batches: list[Batch]
    others: list[Tensor]
    """Parameters that AdamW trains, first those with weight decay."""
    decayed: int


class Muon(Optimizer):
    """Orthogonalize the momentum of matrices and convolutions, and train all other parameters with AdamW.

        optimizer = hotswap.Muon(model, lr=0.012)

    Embeddings, heads that are tied to an embedding, complex parameters and vectors use AdamW, at the same rate.
    The gates of an LSTM or GRU, the query, key and value of `nn.MultiheadAttention`, and the groups of a grouped
    convolution are matrices of their own. Products are in bfloat16 on a GPU and in float32 on a CPU, where they can
    cost more than the forward and backward pass of a small network.

    Where `fully_shard` has sharded the model, matrices are gathered to be orthogonalized, and the state stays sharded.

    Args:
        model: the network; its parameters that require gradients are trained.
        lr: the rate; between 6e-3 and 2e-2 in most runs, with a decay to zero.
        momentum: of matrices, in Nesterov's form.
        weight_decay: decoupled, as AdamW's; vectors have none.
        betas, eps: AdamW's.
        graph: whether the products on a GPU are one CUDA graph, if they can be captured and have the same bits. The
            graph keeps some copies of the matrices, which may have at most 34 million weights.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 1.2e-2,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        graph: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise SettingError(
                f"Muon needs the model, and was given {told(model)}: which parameters are embeddings or convolutions "
                "only the model's layers tell. Write Muon(model, lr=...)."
            )
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay, betas=betas, eps=eps)
        self.model, self.graph = model, graph
        parameters = trained(model, "Muon")
        self._shape_of = shapes_of(model)
        self._works: dict[int, Work] = {}
        self._orthogonalizers: dict[int, Orthogonalizer] = {}
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps}
        super().__init__(parameters, defaults)

    def __getstate__(self) -> dict[str, Any]:
        """Torch's own leaves out what it does not know; what is found anew at the next step is not kept."""
        return self.__dict__ | {"_works": {}, "_orthogonalizers": {}}

    def has_matrices(self) -> bool:
        """Whether a parameter has a shape that Muon orthogonalizes."""
        return any(self._shape(p) is not None for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; `closure`, if given, computes the loss and its gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            work = self._work(number, group["params"])
            self._step_others(work.others[: work.decayed], group, group["weight_decay"])
            self._step_others(work.others[work.decayed :], group, 0.0)
            if work.matrices:
                self._step_matrices(work, group, self._orthogonalizer(number))
        return loss

    def _orthogonalizer(self, number: int) -> Orthogonalizer:
        return self._orthogonalizers.setdefault(number, Orthogonalizer(graph=self.graph))

    def _work(self, number: int, parameters: Sequence[Tensor]) -> Work:
        """The plan for a group. It is made anew where other parameters have gradients than in the step before."""
        key = [(id(p), p.grad.is_sparse) for p in parameters if p.grad is not None]
        known = self._works.get(number)
        if known is not None and known.key == key:
            return known
        batches: dict[tuple[object, ...], list[Tensor]] = {}
        decayed: list[Tensor] = []
        plain: list[Tensor] = []
        for p in parameters:
            if p.grad is None:
                continue
            shape = None if p.grad.is_sparse else self._shape(p)
            if shape is not None:
                batches.setdefault((min(shape[1:]), max(shape[1:]), p.device), []).append(p)
            else:
                (decayed if p.ndim > 1 else plain).append(p)
        found = self._works[number] = Work(
            key,
            [p for mine in batches.values() for p in mine],
            [
                Batch(tuple(shape for p in mine if (shape := self._shape(p))), tuple(p.shape for p in mine))
                for mine in batches.values()
            ],
            decayed + plain,
            len(decayed),
        )
        return found

    def _step_matrices(self, work: Work, group: dict[str, Any], orthogonalizer: Orthogonalizer) -> None:
        """Step along the orthogonalized momentum; one call for each operation, whatever the number of matrices."""
        parameters = work.matrices
        gradients = [_gradient(p) for p in parameters]
        momenta = [part(self._momentum(p)) for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
        whole = [gathered(update, p) for update, p in zip(ahead, parameters, strict=True)]
        updates = [
            part_of(update, p) for update, p in zip(orthogonalizer(whole, work.batches), parameters, strict=True)
        ]
        weights = [part(p) for p in parameters]
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        begin = 0
        for batch in work.batches:
            mine = slice(begin, begin := begin + len(batch.shapes))
            torch._foreach_add_(weights[mine], updates[mine], alpha=-group["lr"] * (0.2 * batch.larger**0.5))

    def _momentum(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p if is_sharded(p) else _gradient(p))
        momentum: Tensor = state["momentum_buffer"]
        return momentum

    def _step_others(self, parameters: Sequence[Tensor], group: dict[str, Any], weight_decay: float) -> None:
        """AdamW, fused on a GPU."""
        if not parameters:
            return
        fused = all(p.is_cuda and p.is_floating_point() for p in parameters)
        for p in parameters:
            if "step" not in (state := self.state[p]):
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            if fused and not state["step"].is_cuda:
                state["step"] = state["step"].to(p.device)
        beta1, beta2 = group["betas"]
        states = [self.state[p] for p in parameters]
        adamw(
            [part(p) for p in parameters],
            [_gradient(p) for p in parameters],
            [part(state["exp_avg"]) for state in states],
            [part(state["exp_avg_sq"]) for state in states],
            [],
            [state["step"] for state in states],
            foreach=not fused,
            fused=fused,
            has_complex=any(p.is_complex() for p in parameters),
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=weight_decay,
            eps=group["eps"],
            maximize=False,
        )

    def _shape(self, p: Tensor) -> Shape | None:
        """The matrices in a parameter; None for one that AdamW trains."""
        if p not in self._shape_of:
            self._shape_of |= shapes_of(self.model)
            self._shape_of.setdefault(p, _by_dimensions(p))  # one that the model does not list
        return self._shape_of[p]


def trained(model: nn.Module, who: str) -> list[Tensor]:
    """The parameters of a model that require gradients; an error if there is none."""
    found: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise SettingError(
            f"{who}(model): no parameter of the model requires a gradient, so there is nothing to train."
        )
    return found


def _check(*, lr: float, momentum: float, weight_decay: float, betas: tuple[float, float], eps: float) -> None:
    whole, share = "at least 0", "at least 0 and below 1"
    rules = [
        ("lr", lr, whole),
        ("weight_decay", weight_decay, whole),
        ("eps", eps, whole),
        ("momentum", momentum, share),
    ]
    for name, value, rule in [*rules, *(("betas", beta, share) for beta in betas)]:
        if not isinstance(value, int | float) or not 0 <= value < (1 if rule is share else float("inf")):
            raise SettingError(f"Muon({name}={value!r}): give a number that is {rule}.")


def shapes_of(model: nn.Module) -> dict[Tensor, Shape | None]:
    """The matrices in each parameter of a model; None for those that AdamW trains."""
    found: dict[Tensor, Shape | None] = {}
    embeddings: set[Tensor] = set()
    for module in model.modules():
        parameters = list(module.named_parameters(recurse=False))
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            embeddings.update(p for _, p in parameters)
        for name, p in parameters:
            parts = STACKED.get(type(module), 1) if name.startswith(("weight_ih", "weight_hh")) else 1
            if isinstance(module, nn.MultiheadAttention) and name == "in_proj_weight":
                parts = 3
            if isinstance(module, _ConvNd):
                parts = module.groups
            found[p] = _by_dimensions(p, parts, convolution=isinstance(module, _ConvNd))
    return found | dict.fromkeys(embeddings)


def _by_dimensions(p: Tensor, parts: int = 1, *, convolution: bool = False) -> Shape | None:
    """The matrices in a parameter: three dimensions outside of a convolution are a stack of matrices."""
    if p.ndim < 2 or p.is_complex() or not p.is_floating_point():
        return None
    if p.ndim == 3 and not convolution:
        shape = Shape(*p.shape) if p.shape[0] > 1 else None  # (1, n, m) is a table of positions or a token
    else:
        rows = p.shape[0] // parts
        shape = Shape(parts, rows, p[0].numel())
    return None if shape is None or min(shape) < 1 or min(shape[1:]) < 2 else shape


def _gradient(p: Any) -> Tensor:
    """The gradient, or the part of it that belongs to the part of the parameter in this process."""
    if is_sharded(p):
        given = p.grad if p.grad.placements == p.placements else p.grad.redistribute(placements=p.placements)
        return part(given)
    gradient: Tensor = p.grad
    return gradient.to_dense() if gradient.is_sparse else gradient


def told(thing: object) -> str:
    """An argument described in a few words, for error messages."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    if isinstance(thing, Optimizer):
        return f"an optimizer ({type(thing).__name__})"
    if isinstance(thing, nn.Module | Mapping | Tensor):
        return f"a {type(thing).__name__}"
    if isinstance(thing, Iterable) and not isinstance(thing, str):
        return "parameters"
    return repr(thing)
