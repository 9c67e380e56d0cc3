"""Races in Transformers' Trainer, with the real package."""

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
from tests.integrations.racing import BATCH, EPOCHS, STEPS, check_equal, check_winner, data, network, race, weights

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_DISABLED", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from hotswap.integrations.transformers import RaceTrainer

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        scores = self.net(x)
        return {"loss": cross_entropy(scores, labels), "logits": scores}


def samples() -> list[dict[str, Tensor]]:
    return [{"x": x, "labels": y} for x, y in data()]


class ThreeLines(Trainer):  # type: ignore[misc]
    """What a user writes who does not take our class."""

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss: Tensor = super().training_step(*args, **kwargs)
        self.optimizer.optimizer.observe(loss)
        return loss


class Stop(TrainerCallback):  # type: ignore[misc]
    """Ends the training at a step, as if somebody had interrupted it."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= state.global_step >= self.step


def trainer(
    folder: Path, kind: type[Trainer] = RaceTrainer, *, own: bool = True, stop: int = STEPS, **more: Any
) -> Any:
    model = Classifier()
    total = None if kind is RaceTrainer else STEPS
    settings: dict[str, Any] = {
        "num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH, "per_device_eval_batch_size": 512,
        "use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_steps": 7, **more,
    }  # fmt: skip
    torch.manual_seed(2)
    return kind(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **settings),
        train_dataset=samples(),
        eval_dataset=samples(),
        optimizers=(race(model, total) if own else None, None),
        callbacks=[Stop(stop)],
    )


def race_in(of: Any) -> hotswap.Race:
    found = of.race if isinstance(of, RaceTrainer) else of.optimizer.optimizer
    assert isinstance(found, hotswap.Race)
    return found


CASES: dict[str, tuple[type[Trainer], dict[str, Any]]] = {
    "our class": (RaceTrainer, {}),
    "three lines": (ThreeLines, {}),
    "accumulated": (RaceTrainer, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": BATCH // 2}),
    "bf16": (RaceTrainer, {"bf16": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_races_and_resumes(case: str, tmp_path: Path) -> None:
    """Evaluating in the middle of turns, and saving before the weights that train are back."""
    kind, more = CASES[case]
    more = {**more, "eval_strategy": "steps", "eval_steps": 13, "save_strategy": "steps", "save_steps": 26}
    whole = trainer(tmp_path / "whole", kind, **more)
    whole.train()
    check_winner(race_in(whole))
    trainer(tmp_path / "part", kind, stop=30, **more).train()
    rest = trainer(tmp_path / "part", kind, **more)
    rest.train(resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-26"))
    check_winner(race_in(rest))
    check_equal(weights(rest.model), weights(whole.model))


def test_the_trainers_schedule_replaces_the_races(tmp_path: Path) -> None:
    rates = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any, **kwargs: Any) -> None:
            lane = optimizer.optimizer.current
            rates.append(lane.optimizer.param_groups[0]["lr"] / lane.rates[0])

    made = trainer(tmp_path, stop=19)
    made.add_callback(Watch())
    made.train()
    assert race_in(made).total_steps == STEPS
    assert rates == pytest.approx([1 - step / STEPS for step in range(19)])


def test_without_an_optimizer_that_of_the_arguments_races_beside_the_default_lanes(tmp_path: Path) -> None:
    made = trainer(tmp_path, own=False, learning_rate=2e-3, max_steps=3, num_train_epochs=1)
    with pytest.raises(hotswap.SettingError, match="no race yet; it makes one when training begins"):
        made.race  # noqa: B018
    made.train()
    names = [lane.name for lane in race_in(made).standings()]
    assert "AdamW 0.002" in names
    assert len(names) == 1 + len(hotswap.lanes(made.model))


def test_by_the_arguments_that_name_a_class(tmp_path: Path) -> None:
    """Where `optimizers=` is refused, as it is with fully sharded models."""
    arguments = TrainingArguments(str(tmp_path), max_steps=3, use_cpu=True, report_to=[], disable_tqdm=True)
    made = RaceTrainer(
        model=Classifier(), args=arguments, train_dataset=samples(),
        optimizer_cls_and_kwargs=(lambda: hotswap.Race, {"share": 0.2}),
    )  # fmt: skip
    made.train()
    assert race_in(made).share == 0.2


def test_the_model_is_what_was_evaluated_last_or_best(tmp_path: Path) -> None:
    """Also after another evaluation, which shows what the race hands over."""
    more = {"eval_strategy": "steps", "eval_steps": 20, "save_steps": 20, "save_strategy": "steps", "stop": 70}
    plain = trainer(tmp_path / "plain", **more)
    plain.train()
    handed = weights(plain.model)
    assert plain.evaluate()["eval_loss"] == pytest.approx(float(loss_now(plain)))
    check_equal(weights(plain.model), handed)
    best = trainer(tmp_path / "best", load_best_model_at_end=True, **more)
    best.train()
    losses = [entry["eval_loss"] for entry in best.state.log_history if "eval_loss" in entry]
    assert best.evaluate()["eval_loss"] == pytest.approx(min(losses), rel=1e-5)
    assert float(loss_now(best)) == pytest.approx(min(losses), rel=1e-5)


def test_a_run_that_is_resumed_with_more_epochs_trains_on(tmp_path: Path) -> None:
    trainer(tmp_path, save_strategy="epoch").train()
    longer = trainer(tmp_path, num_train_epochs=EPOCHS + 2, stop=2 * STEPS)
    longer.train(resume_from_checkpoint=True)
    check_winner(race_in(longer))
    assert race_in(longer).steps == race_in(longer).total_steps == STEPS // EPOCHS * (EPOCHS + 2)


def loss_now(of: Any) -> Tensor:
    of.model.eval()
    x, y = data().tensors
    with torch.no_grad():
        loss: Tensor = of.model(x, y)["loss"]
    return loss


def test_lanes_are_logged_as_curves(tmp_path: Path) -> None:
    made = trainer(tmp_path, stop=60)
    made.train()
    logged = [entry for entry in made.state.log_history if "race/lane" in entry]
    assert {entry["race/lane"] for entry in logged} == {0.0, 1.0}
    assert all(any(name.startswith("race/rate/") for name in entry) for entry in logged)
