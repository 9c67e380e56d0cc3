"""Races in Lightning's loop, with the real package."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import hotswap
from tests.integrations.racing import EPOCHS, STEPS, check_equal, check_winner, loader, loss_of, network, race, weights

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.plugins.precision import MixedPrecision

    from hotswap.integrations.lightning import RaceCallback

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(LightningModule):
    """Automatic optimization."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.net, self.settings = network(), settings

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor | None:
        return loss_of(self.net, batch)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        self.log("val_loss", loss_of(self.net, batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return race(self.net, int(self.trainer.estimated_stepping_batches), **self.settings)


class Manual(Module):
    """Manual optimization, which the callback gives its losses to."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = loss_of(self.net, batch)
        self.manual_backward(loss)
        self.before_step(optimizer, loss)
        optimizer.step()

    def before_step(self, optimizer: Any, loss: Tensor) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return race(self.net, STEPS)


class Observing(Manual):
    """The same without the callback."""

    def before_step(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.observe(loss)


class NoCallback(Module):
    """Automatic optimization without the callback, too: the closure brings the loss."""


class ObservingInStep(NoCallback):
    """With a scaler, which calls the closure itself, it has to be given."""

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        loss = loss_of(self.net, batch)
        self.optimizers().observe(loss)  # type: ignore[union-attr]
        return loss


def trainer(epochs: int = EPOCHS, *more: Any, **settings: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0, "logger": False}
    quiet["enable_checkpointing"] = any(isinstance(one, ModelCheckpoint) for one in more)
    return Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[*more], **{**quiet, **settings})


def half() -> MixedPrecision:
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=50))


CASES: dict[str, tuple[type[Module], dict[str, Any]]] = {
    "automatic": (Module, {}),
    "automatic without the callback": (NoCallback, {}),
    "accumulated and clipped": (Module, {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0, "max_epochs": 18}),
    "automatic, bf16-mixed": (Module, {"precision": "bf16-mixed"}),
    "automatic, 16-mixed": (Module, {"plugins": half}),
    "automatic, 16-mixed without the callback": (ObservingInStep, {"plugins": half}),
    "manual": (Manual, {}),
    "manual without the callback": (Observing, {}),
    "manual, 16-mixed": (Manual, {"plugins": half}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_races_and_resumes(case: str, tmp_path: Path) -> None:
    kind, settings = CASES[case]
    epochs = settings.get("max_epochs", EPOCHS)

    def fit(name: str, until: int, begin: str | None = None, state: Tensor | None = None) -> Any:
        torch.manual_seed(2)
        module = kind()
        own = [] if issubclass(kind, NoCallback | Observing) else [RaceCallback()]
        keep = ModelCheckpoint(tmp_path / name, every_n_epochs=2, save_top_k=-1, filename="{epoch}")
        now = {key: value() if callable(value) else value for key, value in settings.items() if key != "max_epochs"}
        stop = trainer(epochs, *own, keep, Stop(until), **now)
        if state is not None:
            torch.set_rng_state(state)
        stop.fit(module, loader(), ckpt_path=None if begin is None else tmp_path / begin)
        return module, stop.optimizers[0]

    whole, optimizer = fit("whole", epochs)
    check_winner(optimizer)
    fit("part", 2)
    parts, resumed = fit("rest", epochs, "part/epoch=1.ckpt", torch.get_rng_state())
    check_winner(resumed)
    check_equal(weights(parts), weights(whole))


class Stop(RaceCallback.__bases__[0]):  # type: ignore[misc]
    """Ends after some epochs, as if somebody had interrupted the run."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.should_stop = trainer.current_epoch + 1 >= self.epochs


def test_a_run_that_is_resumed_with_more_epochs_trains_on(tmp_path: Path) -> None:
    first = trainer(EPOCHS, RaceCallback())
    first.fit(Module(), loader())
    first.save_checkpoint(tmp_path / "end.ckpt")
    longer = trainer(EPOCHS + 2, RaceCallback())
    longer.fit(Module(), loader(), ckpt_path=tmp_path / "end.ckpt")
    optimizer: Any = longer.optimizers[0]
    check_winner(optimizer)
    assert optimizer.steps == optimizer.total_steps == STEPS // EPOCHS * (EPOCHS + 2)


def test_minibatches_that_are_skipped_change_nothing() -> None:
    class Skipping(Module):
        def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor | None:
            return None if number % 5 == 4 else super().training_step(batch, number)

    fitted = trainer(EPOCHS, RaceCallback())
    fitted.fit(Skipping(), loader())
    optimizer: Any = fitted.optimizers[0]
    check_winner(optimizer)
    assert optimizer.steps == STEPS


def test_manual_optimization_without_losses_says_what_to_do() -> None:
    with pytest.raises(hotswap.LossError, match=r"without a loss.* observe\(loss\) before step"):
        trainer(EPOCHS).fit(Manual(), loader())


def test_losses_reach_the_race_on_their_own_scale() -> None:
    """Whatever a scaler or accumulation has multiplied them with."""
    losses = {}
    for name, settings in {
        "plain": {},
        "accumulated": {"accumulate_grad_batches": 3},
        "scaled": {"plugins": half()},
    }.items():
        torch.manual_seed(2)
        fitted = trainer(1, RaceCallback(), limit_train_batches=3, **settings)
        fitted.fit(Module(), loader())
        losses[name] = fitted.optimizers[0].curves()["loss/AdamW_1e-05"]
    assert losses["scaled"] == pytest.approx(losses["plain"], rel=1e-2)
    assert losses["accumulated"] == pytest.approx(losses["plain"], rel=0.3)


def test_checkpoints_have_the_weights_that_were_validated(tmp_path: Path) -> None:
    """In the middle of the race and after it; and the run ends with what the race hands over."""
    keep = ModelCheckpoint(
        tmp_path, monitor="val_loss", save_top_k=-1, save_weights_only=True, filename="{val_loss:.5f}"
    )
    module = Module()
    trainer(4, RaceCallback(), keep).fit(module, loader(), loader())
    assert len(keep.best_k_models) == 4
    for path, score in keep.best_k_models.items():
        again = Module()
        again.load_state_dict(torch.load(path, weights_only=True)["state_dict"])
        again.eval()
        found = torch.stack([loss_of(again.net, batch) for batch in loader()]).mean()
        assert float(found.detach()) == pytest.approx(float(score), rel=1e-4)
    newest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    check_equal(weights(module), torch.load(newest, weights_only=True)["state_dict"])


def test_early_stopping_ends_with_what_the_race_hands_over() -> None:
    """Also if it stops in the middle of a turn of another lane than the leader."""
    module = Module()
    stopping = trainer(EPOCHS, RaceCallback(), EarlyStopping("val_loss", patience=0, min_delta=10.0))
    stopping.fit(module, loader(), loader())
    optimizer: Any = stopping.optimizers[0]
    assert stopping.current_epoch == 2
    assert optimizer.current is not optimizer.leader
    handed = weights(module.net)
    optimizer.train()
    assert any(not torch.equal(handed[name], value) for name, value in weights(module.net).items())


def test_lanes_are_logged_as_curves(tmp_path: Path) -> None:
    logging = trainer(EPOCHS, RaceCallback(), Stop(3), logger=CSVLogger(tmp_path), log_every_n_steps=2)
    logging.fit(Module(), loader())
    rows = (Path(logging.logger.log_dir) / "metrics.csv").read_text().splitlines()  # type: ignore[union-attr]
    headings = rows[0].split(",")
    assert {"race/lane", "race/loss/AdamW_1e-05", "race/loss/SGD_0.3", "race/rate/SGD_0.3"} <= set(headings)
    lane = headings.index("race/lane")
    assert {row.split(",")[lane] for row in rows[1:]} >= {"0.0", "1.0"}


def test_two_races_in_one_module_are_evaluated_and_observed_by_hand() -> None:
    class Two(Manual):
        def __init__(self) -> None:
            super().__init__()
            self.other = network()

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:  # type: ignore[override]
            for net, optimizer in zip((self.net, self.other), self.optimizers(), strict=True):  # type: ignore[arg-type]
                optimizer.zero_grad()
                loss = loss_of(net, batch)
                self.manual_backward(loss)
                optimizer.observe(loss)
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [race(self.net), race(self.other)]

    fitted = trainer(EPOCHS, RaceCallback())
    fitted.fit(Two(), loader(), loader())
    for optimizer in fitted.optimizers:
        assert isinstance(optimizer, hotswap.Race)
        check_winner(optimizer)
