"""Races in Lightning's own loop, with the real package."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import hotswap
from tests.integrations.test_lightning import Ours, Plain, data, fit, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint, StochasticWeightAveraging
    from lightning.pytorch.plugins.precision import MixedPrecision

pytestmark = [
    pytest.mark.xdist_group("lightning"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::hotswap.HotSwapWarning"),
]

STEPS = 24
ROUNDS = ((6, 2), (16, 1))
PASSES = 6 * 3 + 10 * 2 + 8
"""Of three lanes, then two, then one."""


def adamw_and_sgd(parameters: Any) -> list[torch.optim.Optimizer]:
    """One lane of AdamW and two of SGD, of which one wins."""
    both = list(parameters)
    return [torch.optim.AdamW(both), torch.optim.SGD(both, lr=0.1, momentum=0.9)]


RATES = {adamw_and_sgd: [{"lr": (1e-4,)}, {"lr": (0.1, 0.03)}]}
"""Of three lanes each, where they are not the usual ones."""


def race(model: nn.Module, total_steps: Any = STEPS, base: Any = torch.optim.AdamW, **settings: Any) -> hotswap.Race:
    arms: Any = RATES.get(base, {"lr": (0.1, 0.01, 0.001)})
    settings = {"total_steps": total_steps, "rounds": ROUNDS, "least": 2, "module": model} | settings
    return hotswap.Race(base(model.parameters()), arms, **settings)


class Racing:
    """Put before a module that trains, it trains in a race."""

    trainer: Any
    net: nn.Module
    logged: list[float]
    base: Any = torch.optim.AdamW

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return race(self.net, self.trainer.estimated_stepping_batches, self.base)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if not hotswap.in_trial():
            assert all(p.grad is not None for p in self.net.parameters())
            self.logged.append(len(self.logged))


class RacingOurs(Racing, Ours):
    pass


class RacingPlain(Racing, Plain):
    pass


def by_hand(**settings: Any) -> tuple[nn.Sequential, hotswap.Race]:
    net = network()
    optimizer = race(net, **settings)
    torch.manual_seed(1)
    for _ in range(2):
        for x, y in DataLoader(data(), batch_size=16):
            optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
    return net, optimizer


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("kind", [RacingOurs, RacingPlain])
@pytest.mark.parametrize("base", [torch.optim.AdamW, adamw_and_sgd])
def test_it_is_the_loop_by_hand(kind: type[Any], base: Any) -> None:
    module, (net, optimizer) = kind(), by_hand(base=base)
    module.base = base
    trainer = fit(module)
    assert trainer.global_step == STEPS
    assert module.steps == module.backwards == PASSES
    assert len(module.logged) == STEPS  # once a step where one asks
    assert same(module.net, net)
    assert str(trainer.optimizers[0].standings()) == str(optimizer.standings())
    assert optimizer.winner is not None
    wrapped = module.optimizers()
    assert type(wrapped.base) is type(optimizer.base)  # Lightning's own wrapper sees the leader's
    assert type(optimizer.base) is (torch.optim.SGD if base is adamw_and_sgd else torch.optim.AdamW)


@pytest.mark.parametrize("kind", [RacingOurs, RacingPlain])
def test_lightning_clips_in_each_lane(kind: type[Any]) -> None:
    sgd = partial(torch.optim.SGD, lr=0.01)  # unlike Adam's, its step is as long as the gradient
    module, (net, optimizer) = kind(), by_hand(base=sgd, clip_norm=0.05)
    module.base = sgd
    trainer = fit(module, gradient_clip_val=0.05)
    for ours, theirs in zip(module.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    ours, theirs = ([row.loss for row in one.standings()] for one in (trainer.optimizers[0], optimizer))
    assert ours == pytest.approx(theirs, rel=1e-4)
    unclipped = [row.loss for row in by_hand(base=sgd)[1].standings()]
    assert all(one != pytest.approx(other, rel=1e-3) for one, other in zip(ours, unclipped, strict=True))


def test_only_the_leader_is_logged() -> None:
    class Logging(RacingOurs):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[float, float]] = []

        def on_train_batch_end(self, outputs: Any, *_: Any) -> None:
            record = self.trainer.optimizers[0].last_step
            assert float(self.trainer.callback_metrics["loss"]) == pytest.approx(record.loss_before)
            assert float(outputs["loss"]) == pytest.approx(record.loss_before)
            self.seen.append(record.loss_before)

    module = Logging()
    fit(module)
    assert len(module.seen) == STEPS


@pytest.mark.parametrize("base", [torch.optim.AdamW, adamw_and_sgd])
def test_it_resumes_in_the_middle_of_a_race_exactly(tmp_path: Path, base: Any) -> None:
    class Numbered(RacingOurs):
        """Keeps random numbers in its checkpoints, as Lightning does not."""

        numbers: Tensor | None = None

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["numbers"] = torch.get_rng_state()

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.numbers = checkpoint["numbers"]

        def on_train_start(self) -> None:
            if self.numbers is not None:
                torch.set_rng_state(self.numbers)

    def trainer() -> Trainer:
        keep = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, every_n_epochs=1, save_last=False)
        return Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=[keep],
        )  # fmt: skip

    def loader() -> DataLoader[Any]:
        return DataLoader(data(), batch_size=16, generator=torch.Generator())  # it draws none of the model's numbers

    whole, rest = Numbered(), Numbered()
    whole.base = rest.base = base
    straight, resumed = trainer(), trainer()
    torch.manual_seed(1)
    straight.fit(whole, loader())
    torch.manual_seed(2)
    with torch.no_grad():
        rest.net[0].weight.zero_()
    resumed.fit(rest, loader(), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert resumed.global_step == STEPS
    assert rest.steps == PASSES - (6 * 3 + 6 * 2)  # from the middle of the second round on
    assert same(whole.net, rest.net)
    first, second = straight.optimizers[0], resumed.optimizers[0]
    assert str(first.standings()) == str(second.standings())
    assert first.cost == second.cost == (PASSES, STEPS)


def test_accumulation_by_lightning_is_refused() -> None:
    class Known(Racing):
        """As long as it says, since Lightning would count fewer steps, or cannot count them."""

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return race(self.net)

    class KnownOurs(Known, Ours):
        pass

    class KnownPlain(Known, Plain):
        pass

    with pytest.raises(hotswap.UnsupportedError, match="lanes of a race would train on less"):
        fit(KnownOurs(), accumulate_grad_batches=2)
    module = KnownPlain()
    with pytest.raises(hotswap.UnsupportedError, match=r"one step with hotswap\.accumulate"):
        fit(module, callbacks=[GradientAccumulationScheduler({0: 1, 1: 2})])
    assert module.trainer.global_step == STEPS // 2


@pytest.mark.parametrize("kind", [RacingOurs, RacingPlain])
def test_bfloat16_works_and_a_scaler_is_refused(kind: type[Any]) -> None:
    module = kind()
    fit(module, precision="bf16-mixed")
    assert module.backwards == PASSES
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(hotswap.UnsupportedError, match="GradScaler"):
        fit(kind(), plugins=[scaled])


def test_weight_averaging_with_its_epoch_for_batch_norm() -> None:
    module = RacingOurs()
    fit(module, callbacks=[StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=1, annealing_epochs=1)])
    assert module.backwards == PASSES
    assert module.trainer.current_epoch == 3  # two of training, and one of forwards


class Manual(RacingPlain):
    """The ways of manual optimization."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.automatic_optimization = way, False

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()

        def loss_of(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            return cross_entropy(self.net(batch[0]), batch[1])

        def backward() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of()
            self.manual_backward(loss)
            return loss

        if self.way == "accumulate":
            optimizer.step(hotswap.accumulate(loss_of, [batch]))
        elif self.way == "own backward":
            optimizer.step(backward)
        elif self.way == "ahead":
            optimizer.step_ahead(loss_of)
            optimizer.step()
        elif self.way == "bare" and optimizer.winner is not None:
            backward()
            optimizer.step()
        else:
            optimizer.step(loss_of)


@pytest.mark.parametrize("way", ["closure", "own backward", "accumulate", "ahead", "bare"])
def test_manual_optimization_is_the_loop_by_hand(way: str) -> None:
    module = Manual(way)
    trainer = fit(module)
    net, optimizer = by_hand()
    assert trainer.global_step == STEPS
    assert len(module.logged) == STEPS  # the hook before a step
    assert same(module.net, net)
    assert trainer.optimizers[0].cost == optimizer.cost == (PASSES, STEPS)


def test_manual_optimization_without_a_closure_is_refused_while_lanes_are_racing() -> None:
    class Bare(Manual):
        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
            self.manual_backward(cross_entropy(self.net(batch[0]), batch[1]))
            self.optimizers().step()  # type: ignore[union-attr]

    with pytest.raises(hotswap.ClosureError, match="while lanes are racing"):
        fit(Bare("bare"))
