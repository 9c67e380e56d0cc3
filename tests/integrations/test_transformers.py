"""Transformers' Trainer and Accelerate, with the real packages."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from tests.optim.helpers import batches, own_entry

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_DISABLED", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from accelerate import Accelerator
    from accelerate.state import GradientState
    from transformers import TrainingArguments

    from hotswap.integrations.transformers import HotSwapTrainer

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::hotswap.HotSwapWarning"),
]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        scores = self.net(x)
        return {"loss": cross_entropy(scores, labels), "logits": scores}


def samples() -> list[dict[str, Tensor]]:
    return [{"x": row, "labels": label} for x, y in batches(12) for row, label in zip(x, y, strict=True)]


class InOrder(HotSwapTrainer):
    """Without shuffling, so that a loop by hand can see the same minibatches."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def train(folder: Path, **settings: Any) -> tuple[Classifier, InOrder]:
    model = Classifier()
    arguments = TrainingArguments(
        output_dir=str(folder), num_train_epochs=2, per_device_train_batch_size=16, lr_scheduler_type="constant",
        use_cpu=True, report_to=[], logging_steps=4, save_strategy="no", disable_tqdm=True, seed=1, max_grad_norm=0.0,
        **settings,
    )  # fmt: skip
    optimizer = hotswap.HotSwapSGD(model.parameters())
    trainer = InOrder(model=model, args=arguments, train_dataset=samples(), optimizers=(optimizer, None))
    torch.manual_seed(1)
    trainer.train()
    return model, trainer


def test_the_trainer_searches(tmp_path: Path) -> None:
    model, trainer = train(tmp_path)
    optimizer = trainer._ours()
    assert optimizer is not None
    assert optimizer.last_step is not None
    assert optimizer.last_step.trials
    assert own_entry(optimizer)["bandit"]["step"].item() == 24
    assert model.net[1].num_batches_tracked == 24
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.9 * losses[0]
    assert all(entry["hotswap_trials"] >= 1 for entry in trainer.state.log_history if "loss" in entry)


def test_a_trainer_without_a_hot_swapped_optimizer_says_so(tmp_path: Path) -> None:
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    trainer = HotSwapTrainer(model=Classifier(), args=arguments, train_dataset=samples())
    with pytest.warns(
        hotswap.HotSwapWarning, match=r"no hot-swapped optimizer, so it trains as Trainer does; pass opt"
    ):
        trainer.train()


def test_the_trainers_default_schedule_is_warned_of(tmp_path: Path) -> None:
    model = Classifier()
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    optimizer = hotswap.HotSwapSGD(model.parameters())
    trainer = HotSwapTrainer(model=model, args=arguments, train_dataset=samples(), optimizers=(optimizer, None))
    with pytest.warns(hotswap.HotSwapWarning, match='all rates fall to zero, .*lr_scheduler_type="constant"'):
        trainer.train()


def test_accumulated_minibatches_are_judged_together(tmp_path: Path) -> None:
    model, trainer = train(tmp_path, gradient_accumulation_steps=3)
    optimizer = trainer._ours()
    assert optimizer is not None
    assert own_entry(optimizer)["bandit"]["step"].item() == 8
    assert model.net[1].num_batches_tracked == 24


def test_the_trainers_loss_is_the_trials_loss_at_the_start(tmp_path: Path) -> None:
    """Or the check of the first step would have warned, which is an error here; also when minibatches add up."""
    for steps in (1, 3):
        train(tmp_path, gradient_accumulation_steps=steps, max_steps=1)


def test_accelerate_passes_a_closure_on() -> None:
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    net, optimizer = accelerator.prepare(net, hotswap.HotSwapSGD(net.parameters()))
    first = last = 0.0
    for number, (x, y) in enumerate(batches(40)):
        returned = optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert returned is None  # Accelerate drops it, so the page tells to read the record
        last = optimizer.optimizer.last_step.loss_before
        first = last if number == 0 else first
    assert last < 0.8 * first


def test_accelerate_with_its_own_backward() -> None:
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.2), nn.Linear(8, 3))
    net, optimizer = accelerator.prepare(net, hotswap.HotSwapSGD(net.parameters()))
    for x, y in batches(5):
        with optimizer.optimizer.gradient_pass():
            loss = cross_entropy(net(x), y)
            accelerator.backward(loss)
        optimizer.optimizer.search_with(lambda x=x, y=y: cross_entropy(net(x), y), loss)
        optimizer.step()
        optimizer.zero_grad()
        assert optimizer.optimizer.last_step.trials


def test_a_closure_that_adds_to_what_accelerate_has_accumulated_is_refused() -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    try:
        net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        net, optimizer = accelerator.prepare(net, hotswap.HotSwapSGD(net.parameters()))

        def backward(batch: Any) -> torch.Tensor:
            loss = cross_entropy(net(batch[0]), batch[1])
            accelerator.backward(loss)
            return loss

        first, second = batches(2)
        with accelerator.accumulate(net):
            backward(first)
            optimizer.step(lambda: backward(first))  # which Accelerate leaves out
        assert optimizer.optimizer.last_step is None
        with (
            accelerator.accumulate(net),
            pytest.raises(hotswap.UnsupportedError, match=r"one step with hotswap\.accumulate"),
        ):
            optimizer.step(lambda: backward(second))
    finally:
        GradientState._reset_state()
