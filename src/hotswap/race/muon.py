"""Muon: momentum whose matrices are orthogonalized, beside AdamW for everything that is not a matrix.

References: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks" (the method, its Newton-Schulz
iteration and the coefficients); Liu et al. 2025, "Muon is scalable for LLM training" (the factor 0.2 * sqrt(max(rows,
columns)), with which rates and weight decays of AdamW suit Muon).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from hotswap.errors import SettingError

__all__ = ["Muon", "told", "trained"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic polynomial that moves every singular value to about 1."""

ITERATIONS = 5

STACKED = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3}
"""How many matrices a recurrent layer stacks in one parameter: one for each gate."""


class Shape(NamedTuple):
    """The matrices in a parameter: so many, of so many rows and columns."""

    number: int
    rows: int
    columns: int


class Muon(Optimizer):
    """Orthogonalize the momentum of matrices and convolutions, and train all other parameters with AdamW.

        optimizer = hotswap.Muon(model, lr=0.012)

    Embeddings, heads that are tied to an embedding, complex parameters and vectors use AdamW, at the same rate.
    The gates of an LSTM or GRU, the query, key and value of `nn.MultiheadAttention`, and the groups of a grouped
    convolution are matrices of their own. Products are in bfloat16 on a GPU and in float32 on a CPU, where they can
    cost more than the forward and backward pass of a small network.

    Args:
        model: the network; its parameters that require gradients are trained.
        lr: the rate; between 6e-3 and 2e-2 in most runs, with a decay to zero.
        momentum: of matrices, in Nesterov's form.
        weight_decay: decoupled, as AdamW's; vectors have none.
        betas, eps: AdamW's.
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
    ) -> None:
        if not isinstance(model, nn.Module):
            raise SettingError(
                f"Muon needs the model, and was given {told(model)}: which parameters are embeddings or convolutions "
                "only the model's layers tell. Write Muon(model, lr=...)."
            )
        _check(lr=lr, momentum=momentum, weight_decay=weight_decay, betas=betas, eps=eps)
        self.model = model
        parameters = trained(model, "Muon")
        self._shapes: dict[Tensor, Shape | None] = {}
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps}
        super().__init__(parameters, defaults)

    def __getstate__(self) -> dict[str, Any]:
        """Torch's own leaves out what it does not know."""
        return self.__dict__ | {"_shapes": {}}

    def has_matrices(self) -> bool:
        """Whether there is anything to orthogonalize."""
        return any(self._shape(p) is not None for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; `closure`, if given, computes the loss and its gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            matrices: dict[tuple[int, int, torch.device], list[Tensor]] = {}
            others: list[Tensor] = []
            for p in group["params"]:
                if p.grad is None:
                    continue
                shape = None if p.grad.is_sparse else self._shape(p)
                if shape is None:
                    others.append(p)
                else:
                    key = (min(shape[1:]), max(shape[1:]), p.device)
                    matrices.setdefault(key, []).append(p)
            if others:
                self._step_others(others, group)
            for (_, larger, _), parameters in matrices.items():
                self._step_matrices(parameters, group, 0.2 * larger**0.5)
        return loss

    def _step_matrices(self, parameters: list[Tensor], group: dict[str, Any], scale: float) -> None:
        """Step parameters whose matrices have the same two sides; all their products are one batch."""
        gradients = [_gradient(p) for p in parameters]
        momenta = [self._momentum(p) for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
        shapes = [shape for p in parameters if (shape := self._shape(p)) is not None]
        wide = [_wide(update.reshape(shape)) for update, shape in zip(ahead, shapes, strict=True)]
        updates = orthogonalized(wide[0] if len(wide) == 1 else torch.cat(wide))
        back = [
            (piece if shape.rows <= shape.columns else piece.mT).reshape(p.shape).to(p.dtype)
            for piece, shape, p in zip(
                torch.split(updates, [len(one) for one in wide]), shapes, parameters, strict=True
            )
        ]
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(parameters, back, alpha=-group["lr"] * scale)

    def _momentum(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(_gradient(p))
        momentum: Tensor = state["momentum_buffer"]
        return momentum

    def _step_others(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """AdamW; weight decay for matrices such as embeddings alone."""
        for p in parameters:
            if "step" not in (state := self.state[p]):
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        beta1, beta2 = group["betas"]
        for decay, is_decayed in ((group["weight_decay"], True), (0.0, False)):
            some = [p for p in parameters if (p.ndim > 1) == is_decayed]
            if not some:
                continue
            states = [self.state[p] for p in some]
            adamw(
                some,
                [_gradient(p) for p in some],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                foreach=True,
                has_complex=any(p.is_complex() for p in some),
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=decay,
                eps=group["eps"],
                maximize=False,
            )

    def _shape(self, p: Tensor) -> Shape | None:
        """The matrices in a parameter; None for one that AdamW trains."""
        if p not in self._shapes:
            self._shapes |= shapes_of(self.model)
            self._shapes.setdefault(p, _by_dimensions(p))  # one that the model does not list
        return self._shapes[p]


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


def orthogonalized(matrices: Tensor) -> Tensor:
    """Matrices `(n, rows, columns)`, none higher than wide, whose singular values have been moved to about 1."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        products = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a)
    return x


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


def _gradient(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad.to_dense() if p.grad.is_sparse else p.grad


def _wide(matrices: Tensor) -> Tensor:
    return matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT


def told(thing: object) -> str:
    """What somebody gave, in a few words."""
    if isinstance(thing, type):
        return f"the class {thing.__name__}"
    if isinstance(thing, Optimizer):
        return f"an optimizer ({type(thing).__name__})"
    if isinstance(thing, nn.Module | Mapping | Tensor):
        return f"a {type(thing).__name__}"
    if isinstance(thing, Iterable) and not isinstance(thing, str):
        return "parameters"
    return repr(thing)
