"""Lightning's own loop, with the real package."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import hotswap
from tests.integrations.racing import check_equal, weights
from tests.optim.helpers import batches

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
    from lightning.pytorch.core.optimizer import LightningOptimizer
    from lightning.pytorch.plugins.precision import MixedPrecision

    from hotswap.integrations.lightning import HotSwapModule

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::hotswap.HotSwapWarning"),
]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def data() -> TensorDataset:
    x, y = (torch.cat(parts) for parts in zip(*batches(12), strict=True))
    return TensorDataset(x, y)


class Training:
    """What both kinds of module share."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.net, self.settings = network(), settings
        self.steps, self.backwards, self.logged = 0, 0, []

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        self.steps += 1
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def on_after_backward(self) -> None:
        self.backwards += 1

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return hotswap.HotSwapSGD(self.net.parameters(), **self.settings)


class Ours(Training, HotSwapModule):
    pass


class Plain(Training, LightningModule):
    pass


def quiet(epochs: int = 2, **settings: Any) -> Trainer:
    return Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, **settings,
    )  # fmt: skip


def fit(module: Any, **settings: Any) -> Trainer:
    torch.manual_seed(1)
    trainer = quiet(**settings)
    trainer.fit(module, DataLoader(data(), batch_size=16))
    return trainer


@cache
def by_hand(**settings: Any) -> nn.Sequential:
    net = network()
    optimizer = hotswap.HotSwapSGD(net.parameters(), **settings)
    torch.manual_seed(1)
    for _ in range(2):
        for x, y in DataLoader(data(), batch_size=16):
            optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
    return net


def test_it_is_the_loop_by_hand_and_trials_are_forward_only() -> None:
    module = Ours()
    trainer = fit(module)
    assert trainer.global_step == 24
    assert module.backwards == 24
    assert module.steps > 48  # the trials too
    check_equal(weights(module.net), weights(by_hand()))


def test_clipping_is_lightnings() -> None:
    module = Ours()
    fit(module, gradient_clip_val=0.05)
    for ours, theirs in zip(module.net.parameters(), by_hand(clip_norm=0.05).parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_weight_averaging_with_its_epoch_for_batch_norm() -> None:
    module = Ours()
    averaging = StochasticWeightAveraging(swa_lrs=1.0, swa_epoch_start=1, annealing_epochs=1)
    trainer = fit(module, callbacks=[averaging])
    assert trainer.current_epoch == 3  # two of training, and one of forwards
    assert module.backwards == 24


def test_a_plain_module_works_and_is_told_what_it_costs() -> None:
    module = Plain()
    with pytest.warns(hotswap.HotSwapWarning, match="The closure calls backward"):
        fit(module)
    assert module.backwards > 48
    for ours, theirs in zip(module.net.state_dict().values(), by_hand().state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_other_optimizers_are_left_alone() -> None:
    class Adam(Ours):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.net.parameters())

    module = Adam()
    fit(module)
    assert module.steps == module.backwards == 24


def test_bfloat16_works_and_a_scaler_is_refused() -> None:
    fit(Ours(), precision="bf16-mixed")
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(hotswap.UnsupportedError, match="steps the optimizer with a GradScaler"):
        fit(Ours(), plugins=[scaled])


def test_a_training_step_without_a_loss() -> None:
    class Silent(Ours):
        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
            return None

    with pytest.raises(hotswap.ClosureError, match="training_step returned None"):
        fit(Silent())


def test_accumulation_by_lightning_is_refused() -> None:
    with pytest.raises(hotswap.UnsupportedError, match="accumulate_grad_batches=3 gives the optimizer the last"):
        fit(Ours(), accumulate_grad_batches=3)


@pytest.mark.parametrize("schedule", [{0: 3}, {0: 1, 1: 2}], ids=["always", "later"])
def test_accumulation_by_lightning_is_refused_in_a_plain_module_too(schedule: dict[int, int]) -> None:
    module = Plain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hotswap.HotSwapWarning)
        with pytest.raises(hotswap.UnsupportedError, match=r"one step with hotswap\.accumulate"):
            fit(module, callbacks=[GradientAccumulationScheduler(schedule)])
    assert module.trainer.global_step == (0 if schedule[0] > 1 else 12)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_plain_module_is_clipped_and_its_hooks_run_once_a_step(precision: Any) -> None:
    class Hooked(Plain):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.logged.append(self.net[0].weight.grad is not None)

    module, ours = Hooked(), Ours()
    with pytest.warns(hotswap.HotSwapWarning, match="The closure calls backward"):
        fit(module, precision=precision, gradient_clip_val=0.05)
    fit(ours, precision=precision, gradient_clip_val=0.05)
    assert module.logged == [True] * 24
    check_equal(weights(module.net), weights(ours.net))


def test_a_plain_module_with_a_scaler_is_refused() -> None:
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(hotswap.UnsupportedError, match="cannot be stepped by a GradScaler"):
        fit(Plain(), plugins=[scaled])


class Manual(Plain):
    """The ways of manual optimization."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.hooks, self.automatic_optimization = way, [], False

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.hooks.append(self.net[0].weight.grad is not None)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()

        def loss_of(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            return cross_entropy(self.net(batch[0]), batch[1])

        if self.way == "closure":
            optimizer.step(loss_of)
        elif self.way == "cleared":
            optimizer.step(lambda: (optimizer.zero_grad(), loss_of())[1])
        elif self.way == "accumulate":
            optimizer.step(hotswap.accumulate(loss_of, [batch]))
        else:
            optimizer.zero_grad()
            with optimizer.gradient_pass():
                loss = loss_of()
                self.manual_backward(loss)
            if self.way == "trial closure":
                optimizer.step(trial_closure=loss_of, loss=loss)
            else:
                if self.way == "search_with":
                    optimizer.search_with(loss_of, loss)
                optimizer.step()


@pytest.mark.parametrize("way", ["closure", "cleared", "accumulate", "trial closure", "search_with"])
def test_manual_optimization_is_the_loop_by_hand(way: str) -> None:
    module = Manual(way)
    assert fit(module).global_step == 24
    assert module.hooks == [True] * 24  # once a step, when the gradients are there
    check_equal(weights(module.net), weights(by_hand()))


def test_manual_optimization_without_a_search_is_refused() -> None:
    with pytest.raises(hotswap.ClosureError, match="without a closure before any search"):
        fit(Manual("none"))


def test_a_state_loaded_through_lightnings_wrapper_is_loaded() -> None:
    module = Ours()
    trainer = fit(module)
    inner = trainer.optimizers[0]
    known, state = inner.statistics(), inner.state_dict()
    fresh = hotswap.HotSwapSGD(module.net.parameters())
    LightningOptimizer(fresh).load_state_dict(state)
    assert fresh.statistics() == known


class Metric(nn.Module):
    """Counts samples as torchmetrics does: in an attribute that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0

    def forward(self, scores: Tensor) -> None:
        self.samples += len(scores)


def test_a_metric_is_updated_once_a_step_if_it_asks() -> None:
    class Measured(Ours):
        def __init__(self) -> None:
            super().__init__()
            self.metric = Metric()

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            scores = self.net(batch[0])
            if not hotswap.in_trial():
                self.metric(scores)
            return cross_entropy(scores, batch[1])

    module = Measured()
    fit(module)
    assert module.metric.samples == 2 * len(data())


def test_what_is_logged_is_logged_once_a_step() -> None:
    class Logging(Ours):
        def log(self, name: str, value: Tensor, *args: Any, **kwargs: Any) -> None:
            if not hotswap.in_trial():
                self.logged.append(float(value))
            super().log(name, value, *args, **kwargs)

    module = Logging()
    trainer = fit(module)
    assert len(module.logged) == 24
    assert float(trainer.callback_metrics["loss"]) == pytest.approx(module.logged[-1])


def test_a_checkpoint_of_lightning_resumes(tmp_path: Path) -> None:
    whole = Ours()
    fit(whole)
    trainer = fit(Ours(), epochs=1)
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    state = torch.get_rng_state()
    rest, trainer = Ours(), quiet()
    torch.set_rng_state(state)
    trainer.fit(rest, DataLoader(data(), batch_size=16), ckpt_path=tmp_path / "c.ckpt")
    check_equal(weights(rest.net), weights(whole.net))
