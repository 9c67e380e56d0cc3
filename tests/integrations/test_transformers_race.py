"""Races in Transformers' Trainer and with Accelerate, with the real packages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import default_collate

import hotswap
from tests.integrations.test_transformers import Accelerator, Classifier, InOrder, TrainingArguments, samples
from tests.optim.helpers import batches

pytestmark = [
    pytest.mark.xdist_group("transformers"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::hotswap.HotSwapWarning"),
]

STEPS = 24
ROUNDS = ((6, 2), (16, 1))
PASSES = 6 * 3 + 10 * 2 + 8
"""Of three lanes, then two, then one."""
SGD = partial(torch.optim.SGD, lr=0.01)


def adamw_and_sgd(parameters: Any) -> list[torch.optim.Optimizer]:
    """One lane of AdamW and two of SGD, of which one wins."""
    both = list(parameters)
    return [torch.optim.AdamW(both), torch.optim.SGD(both, lr=0.1, momentum=0.9)]


RATES = {adamw_and_sgd: [{"lr": (1e-4,)}, {"lr": (0.1, 0.03)}]}
"""Of three lanes each, where they are not the usual ones."""


def race(model: nn.Module, base: Any = torch.optim.AdamW, **settings: Any) -> hotswap.Race:
    settings = {"total_steps": STEPS, "rounds": ROUNDS, "least": 2} | settings
    arms: Any = RATES.get(base, {"lr": (0.1, 0.01, 0.001)})
    return hotswap.Race(base(model.parameters()), arms, **settings)


class Counting(InOrder):
    """Counts the losses that are computed, and those of the leader."""

    losses = leaders = 0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        self.losses += 1
        self.leaders += not hotswap.in_trial()
        return super().compute_loss(*args, **kwargs)


def trainer_for(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, **settings: Any) -> Counting:
    settings = {
        "max_steps": STEPS, "per_device_train_batch_size": 16, "lr_scheduler_type": "constant", "use_cpu": True,
        "report_to": [], "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "seed": 1,
        "max_grad_norm": 0.0,
    } | settings  # fmt: skip
    arguments = TrainingArguments(output_dir=str(folder), **settings)
    return Counting(model=model, args=arguments, train_dataset=samples(), optimizers=(optimizer, None))


def minibatches(each: int = 1, steps: int = STEPS) -> list[list[dict[str, Tensor]]]:
    """What the Trainer sees, in steps of several minibatches."""
    rows = samples()
    parts = [default_collate(rows[start : start + 16]) for start in range(0, len(rows), 16)]
    parts *= steps * each // len(parts) + 1
    return [parts[start : start + each] for start in range(0, steps * each, each)]


def without_dropout() -> Classifier:
    """So that random numbers that the Trainer draws in between make no difference."""
    model = Classifier()
    model.net[3].p = 0.0
    return model


def by_hand(optimizer: hotswap.Race, model: nn.Module, each: int = 1) -> list[float]:
    """The same training in a loop of one's own. Returns the leader's losses."""
    losses = []
    for batch in minibatches(each):
        loss = optimizer.step(hotswap.accumulate(lambda inputs: model(**inputs)["loss"], batch))
        losses.append(float(loss))  # type: ignore[arg-type]
    return losses


def logged(trainer: Counting, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if "loss" in entry]


def close(one: nn.Module, other: nn.Module) -> None:
    for (name, ours), theirs in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("each", [1, 2])
def test_it_is_the_loop_by_hand(tmp_path: Path, each: int) -> None:
    """Also where several minibatches make one step."""
    model, other = without_dropout(), without_dropout()
    optimizer, twin = race(model, SGD), race(other, SGD)
    trainer = trainer_for(model, optimizer, tmp_path, gradient_accumulation_steps=each)
    trainer.train()
    losses = by_hand(twin, other, each)
    close(model, other)
    assert optimizer.cost == twin.cost == (PASSES, STEPS)
    assert (trainer.losses, trainer.leaders) == (PASSES * each, STEPS * each)
    assert logged(trainer, "loss") == pytest.approx(losses, abs=1e-3)  # the Trainer rounds to four digits
    assert [row.reason for row in optimizer.standings()] == [row.reason for row in twin.standings()]


@pytest.mark.parametrize("each", [1, 3])
def test_the_winner_is_the_run_that_the_trainer_would_have_trained_alone(tmp_path: Path, each: int) -> None:
    """Bit for bit, with dropout, clipping, and several minibatches a step."""
    model, other = Classifier(), Classifier()
    settings = {"gradient_accumulation_steps": each, "max_grad_norm": 0.3}
    optimizer = race(model, warmup=None, decay=None)
    racing = trainer_for(model, optimizer, tmp_path, **settings)
    racing.train()
    assert optimizer.winner is not None
    base = torch.optim.AdamW(other.parameters(), lr=optimizer.winner["lr"])  # type: ignore[arg-type]
    alone = trainer_for(other, base, tmp_path, **settings)
    alone.train()
    for ours, theirs in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert (racing.losses, alone.losses) == (PASSES * each, STEPS * each)
    for name in ("loss", "grad_norm"):
        assert logged(racing, name)[16:] == pytest.approx(logged(alone, name)[16:], rel=1e-5)


def test_logs_have_the_leaders_rate_and_the_lanes(tmp_path: Path) -> None:
    model = Classifier()
    optimizer = race(model)
    trainer = trainer_for(model, optimizer, tmp_path)
    trainer.train()
    assert logged(trainer, "hotswap_lanes") == [3.0] * 6 + [2.0] * 10 + [1.0] * 8
    assert optimizer.winner is not None
    schedule = [optimizer.schedule.factor(step) for step in range(STEPS)]
    rate = float(optimizer.winner["lr"])  # type: ignore[arg-type]
    assert logged(trainer, "hotswap_lr")[16:] == pytest.approx([rate * factor for factor in schedule[16:]])
    assert logged(trainer, "hotswap_lr")[:6] == pytest.approx([0.001 * factor for factor in schedule[:6]])


def test_lanes_that_differ_in_something_else_have_no_rate_to_log(tmp_path: Path) -> None:
    model = Classifier()
    base = torch.optim.AdamW(model.parameters())
    optimizer = hotswap.Race(base, {"weight_decay": (0.1, 0.0)}, total_steps=STEPS, rounds=((16, 1),), least=2)
    trainer = trainer_for(model, optimizer, tmp_path)
    trainer.train()
    assert logged(trainer, "hotswap_lanes")[0] == 2.0
    assert all("hotswap_lr" not in entry for entry in trainer.state.log_history)


def test_it_clips_in_each_lane_as_the_trainer_does(tmp_path: Path) -> None:
    model, other, free = without_dropout(), without_dropout(), without_dropout()
    optimizer, twin, unclipped = race(model, SGD), race(other, SGD, clip_norm=0.05), race(free, SGD)
    trainer = trainer_for(model, optimizer, tmp_path, max_grad_norm=0.05)
    trainer.train()
    by_hand(twin, other)
    by_hand(unclipped, free)
    close(model, other)
    ours, theirs, others = ([row.loss for row in one.standings()] for one in (optimizer, twin, unclipped))
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert all(one != pytest.approx(other, rel=1e-3) for one, other in zip(ours, others, strict=True))
    assert min(logged(trainer, "grad_norm")) > 0.06  # as it was before


@pytest.mark.parametrize("when", [3, 12, 18])
@pytest.mark.parametrize("base", [torch.optim.AdamW, adamw_and_sgd])
def test_it_resumes_exactly(tmp_path: Path, when: int, base: Any) -> None:
    """In the first round, in the second, and when the race is over."""
    straight, again = Classifier(), Classifier()
    first, second = race(straight, base), race(again, base)
    trainer_for(straight, first, tmp_path, save_strategy="steps", save_steps=when).train()
    with torch.no_grad():
        again.net[0].weight.zero_()
    trainer = trainer_for(again, second, tmp_path)
    trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{when}"))
    lanes = [3] * 6 + [2] * 10 + [1] * 8
    assert trainer.losses == sum(lanes[when:])
    for ours, theirs in zip(straight.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert str(first.standings()) == str(second.standings())


@pytest.mark.parametrize("settings", [{}, {"total_steps": None, "decay": 0.4}])
def test_the_trainers_default_schedule_is_warned_of(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = Classifier()
    trainer = trainer_for(model, race(model, **settings), tmp_path, max_steps=1, lr_scheduler_type="linear")
    with pytest.warns(hotswap.HotSwapWarning, match=r"a schedule of its own, .*lr_scheduler_type=\"constant\""):
        trainer.train()


def test_the_trainers_schedule_is_welcome_where_the_race_has_none(tmp_path: Path) -> None:
    model = Classifier()
    optimizer = race(model, warmup=None, decay=None)
    trainer = trainer_for(model, optimizer, tmp_path, lr_scheduler_type="linear")
    trainer.train()  # a warning would be an error
    assert optimizer.winner is not None
    rate = float(optimizer.winner["lr"])  # type: ignore[arg-type]
    assert logged(trainer, "hotswap_lr")[-1] == pytest.approx(rate / STEPS)


def test_a_scaler_is_refused(tmp_path: Path) -> None:
    model = Classifier()
    optimizer = race(model)
    trainer = trainer_for(model, optimizer, tmp_path)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu")  # fp16=True needs a GPU
    with pytest.raises(hotswap.UnsupportedError, match="fp16=True steps the optimizer with a GradScaler"):
        trainer.train()
    assert optimizer.cost == (0, 0)


def test_a_training_that_was_interrupted_can_be_begun_again(tmp_path: Path) -> None:
    class Interrupted(Counting):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if self.losses == 9:  # the second lane of the third step
                self.losses += 1
                raise KeyboardInterrupt
            return super().compute_loss(*args, **kwargs)

    model = Classifier()
    optimizer = race(model)
    trainer = trainer_for(model, optimizer, tmp_path, gradient_accumulation_steps=2)
    trainer.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert optimizer.cost.plain == 1
    trainer.args.max_steps = STEPS - 1
    trainer.train()
    assert optimizer.cost.plain == STEPS


def test_accelerate_passes_a_closure_on() -> None:
    accelerator = Accelerator(cpu=True)
    net, other = (nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(2))
    other.load_state_dict(net.state_dict())
    twin = race(other)
    net, optimizer = accelerator.prepare(net, race(net))
    for x, y in batches(STEPS):
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        twin.step(lambda x=x, y=y: cross_entropy(other(x), y))
    assert optimizer.optimizer.cost == (PASSES, STEPS)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
