"""Hugging Face Transformers' Trainer, which calls `optimizer.step()` without a closure.

    trainer = HotSwapTrainer(model=model, args=args, train_dataset=data,
                             optimizers=(hotswap.HotSwapSGD(model), None))

Choose `lr_scheduler_type="constant"` in the arguments: a schedule scales the rates that the bandit chooses, and a race
has one of its own.

    race = hotswap.Race(torch.optim.AdamW(model.parameters()), total_steps=args.max_steps, module=model)
    trainer = HotSwapTrainer(model=model, args=args, train_dataset=data, optimizers=(race, None))
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import SchedulerType, Trainer

from hotswap.errors import UnsupportedError
from hotswap.optim import HotSwap, Race, RaceStep, StepRecord, in_trial
from hotswap.optim.user_warnings import warn

__all__ = ["HotSwapTrainer"]

Minibatch = tuple[dict[str, Any], Any]
"""The inputs, and how many items the whole step has, as the Trainer counts them."""


class HotSwapTrainer(Trainer):
    """A Trainer whose optimizer, if it is hot-swapped, searches on the minibatches of the step; or, if it is a race,
    lets every lane train on them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hotswap_seen: list[Minibatch] = []
        self._hotswap_loss: Tensor | float = 0.0
        self._hotswap_norm: Tensor | float | None = None
        """Of the leader's gradient, before it was clipped."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's; minibatches of a training that was interrupted are forgotten."""
        self._hotswap_seen, self._hotswap_norm = [], None
        optimizer = self._ours()
        if optimizer is not None:
            optimizer.zero_grad()
            self._warn_of_schedule(optimizer)
            if isinstance(optimizer, Race) and self.accelerator.scaler is not None:
                raise UnsupportedError(
                    "The Trainer's fp16=True steps the optimizer with a GradScaler, which a race cannot use; choose "
                    "bf16=True."
                )
        elif self.optimizer is None:
            warn(
                "HotSwapTrainer was given no hot-swapped optimizer, so it trains as Trainer does; pass "
                "optimizers=(hotswap.HotSwapSGD(model.parameters()), None)."
            )
        return super().train(*args, **kwargs)

    def _warn_of_schedule(self, optimizer: HotSwap | Race) -> None:
        if self.lr_scheduler is not None or self.args.lr_scheduler_type != SchedulerType.LINEAR:
            return
        if isinstance(optimizer, HotSwap):
            warn(
                "The Trainer's default schedule lets all rates fall to zero, those that the bandit chooses, too; "
                'pass lr_scheduler_type="constant" in its arguments, or the Trainer a scheduler that you want.'
            )
        elif not optimizer.schedule.is_constant:
            warn(
                "The Trainer's default schedule lets all rates fall to zero, and the race has a schedule of its own, "
                'so that both scale them; pass lr_scheduler_type="constant" in the arguments, or give the race '
                "warmup=None and decay=None."
            )

    def _ours(self) -> HotSwap | Race | None:
        """The optimizer, if it is one of hotswap's."""
        inner = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        return inner if isinstance(inner, HotSwap | Race) else None

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """As Trainer's, and remembers what a trial has to evaluate.

        In a race it only keeps the minibatch, until the last one of a step: then every lane takes the step. What it
        returns is the leader's loss of all of them, and zero before the last one.
        """
        optimizer = self._ours()
        if optimizer is None:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return loss
        kept = dict(inputs)
        if isinstance(optimizer, Race):
            return self._hotswap_race(optimizer, model, (kept, num_items_in_batch))
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

    # --- a search -----------------------------------------------------------------------------------------------------

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

    # --- a race -------------------------------------------------------------------------------------------------------

    def _hotswap_race(self, race: Race, model: Any, minibatch: Minibatch) -> Tensor:
        """Keep a minibatch; with the last one of a step, let the race take it, ahead of the Trainer's own `step()`."""
        self._hotswap_seen.append(minibatch)
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.args.device)
        seen, self._hotswap_seen = self._hotswap_seen, []
        return race.step_ahead(lambda: self._hotswap_pass(model, seen))

    def _hotswap_pass(self, model: Any, seen: list[Minibatch]) -> Tensor:
        """What the Trainer does in one step, for one lane: forward and backward of each minibatch, and clipping."""
        model.zero_grad()
        total = torch.zeros((), device=self.args.device)
        for number, (inputs, count) in enumerate(seen, start=1):
            exchange = number == len(seen)  # between processes, gradients of the last minibatch with all before it
            with nullcontext() if exchange else self.accelerator.no_sync(model):
                total = total + super().training_step(model, dict(inputs), count)
        if (self.args.max_grad_norm or 0.0) > 0:
            norm = self.accelerator.clip_grad_norm_(model.parameters(), self.args.max_grad_norm)
            if not in_trial():
                self._hotswap_norm = norm
        return total

    # --- logs ---------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As Trainer's, with the rate that was applied last, and the trials it took or the lanes that are racing."""
        optimizer = self._ours()
        record = None if optimizer is None else optimizer.last_step
        if record is not None and "loss" in logs:
            logs = {**logs, **_told(record)}
            if "grad_norm" in logs and self._hotswap_norm is not None:
                logs["grad_norm"] = float(self._hotswap_norm)  # the Trainer has seen it clipped
        super().log(logs, *args, **kwargs)


def _told(record: StepRecord | RaceStep) -> dict[str, float]:
    """The rate of a step, where there is a choice of rates, and what the step took."""
    if isinstance(record, RaceStep):
        values, cost = record.values[record.leader], {"hotswap_lanes": float(len(record.values))}
    else:
        values, cost = record.values, {"hotswap_trials": float(len(record.trials))}
    rate = values.get("lr")
    return {"hotswap_lr": float(rate), **cost} if isinstance(rate, int | float) else cost
