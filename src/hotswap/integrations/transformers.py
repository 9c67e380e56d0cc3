"""Hugging Face Transformers' Trainer, which calls `optimizer.step()` without a closure.

    trainer = RaceTrainer(model=model, args=args, train_dataset=data)

`RaceTrainer` races the optimizer that the arguments name beside the default lanes. For one of your own, with a race of
your own or without the class, see the documentation, "In a training loop". `HotSwapTrainer` is for the paper's bandit:

    trainer = HotSwapTrainer(model=model, args=args, train_dataset=data,
                             optimizers=(hotswap.HotSwapSGD(model), None))

Choose `lr_scheduler_type="constant"` in the arguments: a schedule scales the rates that the bandit chooses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import SchedulerType, Trainer

from hotswap.errors import SettingError
from hotswap.optim import HotSwap
from hotswap.optim.user_warnings import warn
from hotswap.race import Race

__all__ = ["HotSwapTrainer", "RaceTrainer"]

Minibatch = tuple[dict[str, Any], Any]
"""The inputs, and how many items the whole step has, as the Trainer counts them."""


class RaceTrainer(Trainer):
    """A Trainer whose optimizer races; `trainer.race.standings()` says how the lanes have done.

    Without `optimizers=` the optimizer of the arguments, with their learning rate, races beside the default lanes, and
    stays until the last round. `optimizers=(hotswap.Race(...), None)` is a race of your own, with a `judge` perhaps; it
    needs no `total_steps`. The Trainer's scheduler replaces the race's schedule. After training the model holds what
    the race hands over, or the best checkpoint with `load_best_model_at_end`.
    """

    @property
    def race(self) -> Race:
        """The race, once training has begun."""
        inner = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        if not isinstance(inner, Race):
            raise SettingError("The RaceTrainer has no race yet; it makes one when training begins.")
        return inner

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """As Trainer's; an optimizer that is no race races beside the default lanes."""
        made: torch.optim.Optimizer = super().create_optimizer(model)
        if not isinstance(getattr(made, "optimizer", made), Race):
            raced: Any = self.model if model is None else model
            made = self.optimizer = Race(raced, made)
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As Trainer's; a race without a length gets the Trainer's."""
        if self.race.total_steps is None and not self.race.steps:
            self.race.total_steps = num_training_steps
        return super().create_scheduler(num_training_steps, optimizer)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """As Trainer's, and gives the race the loss, on the same scale whether or not minibatches add up."""
        if self.race.steps == self.race.total_steps:  # trained again, or resumed with more epochs than before
            self.race.finish(self.state.max_steps - self.state.global_step)
        loss: Tensor = super().training_step(*args, **kwargs)
        self.race.observe(loss * self.current_gradient_accumulation_steps)
        return loss

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's; afterwards the model holds what the race hands over."""
        result = super().train(*args, **kwargs)
        self.race.eval()
        return result

    def _load_best_model(self) -> None:
        self.race.eval()  # or the next evaluation would write its weights over the best ones
        super()._load_best_model()

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As Trainer's, with the number, the rate and the loss of the lane in the model."""
        if "loss" in logs:
            logs = {**logs, **{f"race/{name}": value for name, value in self.race.curves().items()}}
        super().log(logs, *args, **kwargs)


class HotSwapTrainer(Trainer):
    """A Trainer whose optimizer, if it is hot-swapped, searches on the minibatches of the step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hotswap_seen: list[Minibatch] = []
        self._hotswap_loss: Tensor | float = 0.0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's; minibatches of a training that was interrupted are forgotten."""
        self._hotswap_seen = []
        optimizer = self._ours()
        if optimizer is not None:
            optimizer.zero_grad()
            self._warn_of_schedule()
        elif self.optimizer is None:
            warn(
                "HotSwapTrainer was given no hot-swapped optimizer, so it trains as Trainer does; pass "
                "optimizers=(hotswap.HotSwapSGD(model.parameters()), None)."
            )
        return super().train(*args, **kwargs)

    def _warn_of_schedule(self) -> None:
        if self.lr_scheduler is None and self.args.lr_scheduler_type == SchedulerType.LINEAR:
            warn(
                "The Trainer's default schedule lets all rates fall to zero, those that the bandit chooses, too; "
                'pass lr_scheduler_type="constant" in its arguments, or the Trainer a scheduler that you want.'
            )

    def _ours(self) -> HotSwap | None:
        """The optimizer, if it is hot-swapped."""
        inner = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        return inner if isinstance(inner, HotSwap) else None

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """As Trainer's, and remembers what a trial has to evaluate."""
        optimizer = self._ours()
        if optimizer is None:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return loss
        kept = dict(inputs)
        if not self._hotswap_seen:
            self._hotswap_loss = 0.0
        with optimizer.gradient_pass():
            loss = super().training_step(model, inputs, num_items_in_batch)
        self._hotswap_seen.append((kept, num_items_in_batch))
        self._hotswap_loss = self._hotswap_loss + loss.detach()
        if self.accelerator.sync_gradients:
            seen, self._hotswap_seen = self._hotswap_seen, []
            optimizer.search_with(lambda: self._hotswap_judge(model, seen), self._hotswap_loss)
        return loss

    def _hotswap_judge(self, model: Any, seen: list[Minibatch]) -> Tensor:
        """The loss of the step's minibatches, as the gradient pass has added it up."""
        total = torch.zeros(())
        for inputs, count in seen:
            with self.compute_loss_context_manager():
                loss: Any = self.compute_loss(model, self._prepare_inputs(inputs), num_items_in_batch=count)
            if self.args.n_gpu > 1:
                loss = loss.mean()
            if not self._hotswap_scaled(count):
                loss = loss / self.current_gradient_accumulation_steps
            total = total.to(loss.device) + loss.detach()
        return total

    def _hotswap_scaled(self, count: Any) -> bool:
        """Whether the loss of a minibatch is already its share of the step's."""
        known = getattr(self, "loss_is_scaled_for_ga", None)
        if known is not None:
            return bool(known)
        return (self.model_accepts_loss_kwargs and count is not None) or self.compute_loss_func is not None

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As Trainer's, with the rate that was applied last, if rates are chosen, and the trials it took."""
        optimizer = self._ours()
        record = None if optimizer is None else optimizer.last_step
        if record is not None and "loss" in logs:
            rate = record.values.get("lr")
            chosen = {"hotswap_lr": float(rate)} if isinstance(rate, int | float) else {}
            logs = {**logs, **chosen, "hotswap_trials": float(len(record.trials))}
        super().log(logs, *args, **kwargs)
