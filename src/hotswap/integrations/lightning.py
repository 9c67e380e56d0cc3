"""Lightning.

A race is returned from `configure_optimizers`, like any optimizer. Its callback does the rest:

    def configure_optimizers(self):
        return hotswap.Race(self, total_steps=self.trainer.estimated_stepping_batches)

    trainer = Trainer(callbacks=[RaceCallback()])

`HotSwapModule` is for the paper's bandit, with automatic optimization:

    class Net(HotSwapModule):
        def training_step(self, batch, _):
            scores = self(batch[0])
            if not hotswap.in_trial():
                self.accuracy(scores, batch[1])
            return loss_fn(scores, batch[1])

        def configure_optimizers(self):
            return hotswap.HotSwapSGD(self)

`training_step` is called for trials, too. `self.log` ignores them, but what you count yourself, and metrics such as
torchmetrics', which keep what they have seen where no step can set it back, count them all unless you ask
`hotswap.in_trial()`.

A plain LightningModule works as well, but its closure runs a backward pass for every trial, and `self.log` counts
trials as if they were steps. With manual optimization it does not, as long as you log outside of the closure:

    def training_step(self, batch, _):
        self.optimizers().step(lambda: loss_fn(self(batch[0]), batch[1]))
"""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor

from hotswap.errors import ClosureError, UnsupportedError
from hotswap.optim import HotSwap, in_trial
from hotswap.optim.closures import WithBackward
from hotswap.race import Race

__all__ = ["HotSwapModule", "RaceCallback"]


class RaceCallback(Callback):
    """Validates what a race would hand over, gives the race its losses, and logs its lanes.

    - From validation on the model holds the leader's averaged weights, until training goes on. A checkpoint that is
      written in between has the weights that were validated; the optimizer's part of it has those that train.
    - Losses reach a race that is the module's only optimizer, in every mode of optimization and precision. With several
      optimizers call `observe(loss)` before `step()`.
    - Rate, loss and number of the lane in the model are logged every `log_every_n_steps`.
    - After training the model holds what the race hands over.
    """

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Give the race the loss, without the factors of a scaler and of accumulated minibatches."""
        if len(trainer.optimizers) != 1 or not isinstance(race := trainer.optimizers[0], Race):
            return
        precision = trainer.precision_plugin
        if isinstance(precision, MixedPrecision) and precision.scaler is not None:
            loss = loss / precision.scaler.scale(torch.ones_like(loss))
        race.observe(loss * (trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validate what the race would hand over now."""
        for race in _races(trainer):
            race.eval()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Go on with the weights that train, also in a run that was resumed with more epochs than before."""
        for race in _races(trainer):
            race.train()
            if race.steps == race.total_steps and math.isfinite(trainer.estimated_stepping_batches):
                race.finish(int(trainer.estimated_stepping_batches) - trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the lanes."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a part of the Trainer
        if not trainer.loggers or trainer.global_step % every:
            return
        for number, race in enumerate(_races(trainer)):
            prefix = f"race{number or ''}"
            values = {f"{prefix}/{name}": value for name, value in race.curves().items()}
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave what the race hands over in the model."""
        for race in _races(trainer):
            race.eval()


def _races(trainer: Trainer) -> list[Race]:
    return [optimizer for optimizer in trainer.optimizers if isinstance(optimizer, Race)]


class HotSwapModule(LightningModule):
    """A LightningModule whose trials are forward only and are not logged."""

    def log(self, *args: Any, **kwargs: Any) -> None:
        """As Lightning's, except that a trial is no training step."""
        if not in_trial():
            super().log(*args, **kwargs)

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Any = None,
    ) -> None:
        """As Lightning's, for every optimizer but ours."""
        inner = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        if not isinstance(inner, HotSwap):
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            return
        if self.trainer.fit_loop._skip_backward:  # weight averaging: an epoch of forwards, for batch norm
            optimizer_closure()
            return
        several = self.trainer.accumulate_grad_batches
        if several > 1:
            raise UnsupportedError(
                f"Lightning's accumulate_grad_batches={several} gives the optimizer the last of the minibatches only, "
                "so a search would judge on less than the gradient is of; use larger minibatches, or manual "
                "optimization with hotswap.accumulate."
            )
        precision = self.trainer.precision_plugin
        if isinstance(precision, MixedPrecision) and precision.scaler is not None:
            raise UnsupportedError(
                "Lightning's precision='16-mixed' steps the optimizer with a GradScaler, which hot swapping cannot "
                "use; choose precision='bf16-mixed'."
            )
        inner.step(_TrainingStep(self, inner, optimizer_closure))


class _TrainingStep(WithBackward):
    """A closure of Lightning's. It sets gradients to zero, takes the training step and runs the backward pass."""

    def __init__(self, module: HotSwapModule, optimizer: Any, closure: Any) -> None:
        self.module, self.optimizer, self.closure = module, optimizer, closure

    def __call__(self) -> Tensor:
        """A trial: the training step alone."""
        return self._loss(self.closure._step_fn().closure_loss)

    def backward(self, factor: float = 1.0) -> Tensor:
        """All of it, then what Lightning does between a backward and a step: hooks, and clipping."""
        if factor != 1.0:
            raise ClosureError("Lightning runs the backward pass itself; leave loss_scale out.")
        loss = self.module.trainer.precision_plugin._wrap_closure(self.module, self.optimizer, self.closure)
        return self._loss(self.closure._result.closure_loss if loss is not None else None)

    @staticmethod
    def _loss(loss: Tensor | None) -> Tensor:
        if loss is None:
            raise ClosureError("training_step returned None, so there is no loss to compare by; return the loss.")
        return loss.detach()
