"""Parameters in bfloat16 and float16 are refused; computing in them is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD, UnsupportedError
from tests.optim.helpers import batches, loss_of, model, same, weights

RULE = r"whose rounding swallows most steps of a search; keep the parameters in float32, model\.float\(\)"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "build",
    [
        HotSwapSGD,
        lambda net: HotSwap(torch.optim.Adam(net.parameters())),
        lambda net: HotSwapSGD(net.named_parameters()),
        lambda net: HotSwapSGD(model()).add_param_group({"params": net.parameters()}),
        lambda net: HotSwapSGD(model()).add_param_group({"params": next(net.parameters())}),
    ],
    ids=["sgd", "adam", "named", "group", "group of one"],
)
def test_parameters_that_would_round_their_steps_away_are_refused(
    build: Callable[[nn.Module], object], dtype: torch.dtype
) -> None:
    with pytest.raises(UnsupportedError, match=f"A parameter is in {str(dtype)[6:]}, {RULE}"):
        build(model(dtype=dtype))


def test_a_model_that_is_converted_later_is_refused_by_its_next_step() -> None:
    net, (x, y) = model(), batches(1)[0]
    optimizer = HotSwapSGD(net)
    net.bfloat16()
    before = weights(net)
    with pytest.raises(UnsupportedError, match=RULE):
        optimizer.step(loss_of(net, (x.bfloat16(), y)))
    assert same(weights(net), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("inside", [True, False], ids=["in the closure", "around the step"])
def test_autocast(inside: bool, dtype: torch.dtype) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters(), loss_scale=65536.0 if dtype is torch.float16 else None)
    for x, y in batches(30):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            with torch.autocast("cpu", dtype, enabled=inside):
                return cross_entropy(net(x).float(), y)

        with torch.autocast("cpu", dtype, enabled=not inside):
            optimizer.step(closure)
    assert optimizer.last_step.loss_after < 1.0
    assert {p.dtype for p in net.parameters()} == {torch.float32}
