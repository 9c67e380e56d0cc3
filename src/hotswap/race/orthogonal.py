"""Orthogonalizing matrices: batched by shape, and on a GPU as one captured CUDA graph.

References: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks" (the Newton-Schulz iteration
and its coefficients).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor

__all__ = ["Batch", "Orthogonalizer", "Shape", "orthogonalized"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The coefficients of the quintic polynomial that moves every singular value to about 1."""

ITERATIONS = 5

CAPTURED_AFTER = 3
"""Steps without a graph, in which cuBLAS chooses its kernels and gets its workspace."""

LARGEST = 2**25
"""Numbers in the matrices of a graph at most: it keeps some copies of them, and larger products hide their launches."""


class Shape(NamedTuple):
    """The matrices in a parameter: so many, of so many rows and columns."""

    number: int
    rows: int
    columns: int


class Batch(NamedTuple):
    """Parameters whose matrices have the same two sides: all their products are one batch."""

    shapes: tuple[Shape, ...]
    sizes: tuple[torch.Size, ...]
    """The sizes of the parameters."""

    @property
    def larger(self) -> int:
        """The longer side of the matrices."""
        return max(self.shapes[0][1:])


def orthogonalized(matrices: Tensor) -> Tensor:
    """Matrices `(n, rows, columns)`, none higher than wide, whose singular values have been moved to about 1."""
    a, b, c = COEFFICIENTS
    x = _rounded(matrices)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        products = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(products, products, products, beta=b, alpha=c), x, beta=a)
    return x


def _all(updates: Sequence[Tensor], batches: Sequence[Batch]) -> list[Tensor]:
    """The orthogonalized updates of parameters, which stand in the order of the batches."""
    left, found = iter(updates), []
    for batch in batches:
        mine = [next(left) for _ in batch.shapes]
        wide = [_wide(_rounded(update.reshape(shape))) for update, shape in zip(mine, batch.shapes, strict=True)]
        pieces = torch.split(orthogonalized(wide[0] if len(wide) == 1 else torch.cat(wide)), [len(one) for one in wide])
        for piece, shape, size, update in zip(pieces, batch.shapes, batch.sizes, mine, strict=True):
            found.append((piece if shape.rows <= shape.columns else piece.mT).reshape(size).to(update.dtype))
    return found


def _rounded(matrices: Tensor) -> Tensor:
    """Matrices in the precision of their products."""
    return matrices.bfloat16() if matrices.is_cuda else matrices.float()


def _wide(matrices: Tensor) -> Tensor:
    return matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT


class _Graph:
    """One CUDA graph that orthogonalizes updates of the same shapes at each step."""

    def __init__(self, updates: Sequence[Tensor], batches: Sequence[Batch]) -> None:
        self.inputs = [torch.empty_like(update, memory_format=torch.contiguous_format) for update in updates]
        torch._foreach_copy_(self.inputs, list(updates))
        self.graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(updates[0].device),
            torch.cuda.graph(self.graph, capture_error_mode="thread_local"),
        ):
            self.outputs = _all(self.inputs, batches)

    def __call__(self, updates: Sequence[Tensor]) -> list[Tensor]:
        torch._foreach_copy_(self.inputs, list(updates))
        self.graph.replay()
        return self.outputs


_graphs: WeakValueDictionary[object, _Graph] = WeakValueDictionary()
"""Graphs by the shapes, device, stream and thread that they are for: lanes of a race take turns with one graph."""


class Orthogonalizer:
    """Orthogonalizes updates at each step.

    Args:
        graph: whether one CUDA graph does it on a GPU, where capturing works and gives the same bits.
    """

    def __init__(self, *, graph: bool) -> None:
        self.wants_graph = graph
        self.graph: _Graph | None = None
        self.key: object = None
        self.steps = 0  # without a graph, with the present key

    def __call__(self, updates: Sequence[Tensor], batches: Sequence[Batch]) -> list[Tensor]:
        """The orthogonalized updates; valid until the next call."""
        where = updates[0].device
        if not self.wants_graph or where.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return _all(updates, batches)
        key = _key(updates, batches)
        if key != self.key:
            self.graph, self.key, self.steps = _graphs.get(key), key, 0
        if self.graph is not None:
            return self.graph(updates)
        self.steps += 1
        found = _all(updates, batches)
        fits = all(u.device == where for u in updates) and sum(u.numel() for u in updates) <= LARGEST
        if fits and self.steps == CAPTURED_AFTER:
            self.graph = _captured(updates, batches, found)
            if self.graph is not None:
                _graphs[key] = self.graph
        return found


def _key(updates: Sequence[Tensor], batches: Sequence[Batch]) -> object:
    where = updates[0].device
    types = tuple(update.dtype for update in updates)
    return where, torch.cuda.current_stream(where).cuda_stream, threading.get_ident(), types, tuple(batches)


def _captured(updates: Sequence[Tensor], batches: Sequence[Batch], expected: Sequence[Tensor]) -> _Graph | None:
    """A graph that gives what is expected, bit for bit; None where there is none."""
    try:
        graph = _Graph(updates, batches)
        same = all(map(torch.equal, graph(updates), expected))
    except RuntimeError:  # something on this machine cannot be captured
        return None
    return graph if same else None
