"""When to use what: the same advice in the README and on the documentation's first page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarked import kept, pass_times
from tuning_free import against, leads_are_unsure, mean_of, score_of, training_of

from hotswap.optim.racing.grids import LANES
from hotswap.races import ROUNDS, Round, plan_rounds, race_passes

LONG = 100_000
"""Steps of a run so long that the least length of a round does not matter."""

SHORT = 320
"""Steps of the first example."""

ADVICE = """
In short, geometric means of scores: race of AdamW and SGD {two}, race of AdamW {one}, Prodigy {prodigy}, AdamW at its
default {adamw}. {unsure}

- **Nobody has tuned the network yet, and you know for how many steps you will train: [race]({folder}races.md).**
  `hotswap.Race(AdamW(...), total_steps=...)` trains six copies of the run at different rates and drops the worse ones
  early. That takes {passes:.2f} times the passes of one run, of a short one more, {short:.2f} times for 320 steps.
  While all six race, it takes {copies:.0f} times the memory of the weights on top of AdamW's own, since each copy has
  its weights and AdamW state (`offload=True` keeps them in the host's memory). A race has a warm-up and a decay of its
  own, so leave out your scheduler. Its rates fall over the last 40 % of the steps; before that, other methods are often
  ahead, so do not stop it early.
- **AdamW may not be the right optimizer: race AdamW and SGD**, `hotswap.Race([adamw, sgd], ...)`, nine copies.
  {with_sgd}
- **You do not want to pay for copies: Prodigy**, which is not ours. Beside one of AdamW's, one of its passes takes
  {prodigy_time}; one of a race, {race_time}.
- **You do not know for how long you will train: Schedule-Free**, which is not ours, **or a race without
  `total_steps`**, evaluated inside of `optimizer.average()`. It takes {more} passes more than one run.
  {without_length}
- **You know a good rate and a schedule: none of ours.** Use what you know; that is one run, with nothing to search.
- **You want the training objective itself as low as it goes: `hotswap.presets.adam(model)`.** It has the lowest one at
  equal cost in [a study of the paper's problem]({folder}beyond-the-paper.md), of 28 variants, AdaDelta and well-chosen
  SGD, at the cost of 20 epochs and of 500. That is one problem, on which a network can fit its data perfectly. The
  benchmark, whose runs are shorter, does not recommend it: {training}.
- **You want to study the paper's algorithm: `hotswap.HotSwapSGD(model)`.** It needs no length, no schedule and no rate,
  and drives an objective far down, but it is slow at first: it scores {own} after a few epochs of its own network. It
  is **not** for transformers ({transformer}). The step that lowers the loss of one minibatch most is not the step that
  helps the whole run. Where the loss can go below zero, it and the preset need `reward=hotswap.RelativeReduction()`;
  without it such a step raises an error, as on `gaussian_regression` below.
"""


def when(folder: str) -> str:
    """The advice, with links into a folder; numbers are those of the benchmark."""
    return ADVICE.format(
        folder=folder,
        one=mean_of("race_adamw"),
        two=mean_of("race_adamw_sgd"),
        passes=race_passes(LANES, LONG) / LONG,
        short=race_passes(LANES, SHORT) / SHORT,
        more=sum((one.end - one.begin) * (alive - 1) for one, alive in _of_unknown_length()),
        copies=copies(),
        with_sgd=against("race_adamw_sgd", "race_adamw"),
        prodigy=mean_of("prodigy"),
        adamw=mean_of("adamw"),
        prodigy_time=pass_times("prodigy"),
        race_time=pass_times("race_adamw", "race_adamw_sgd"),
        unsure=leads_are_unsure("prodigy"),
        training=training_of("preset_adam", "paper_network", "adamw"),
        without_length=against("race_open", "schedule_free"),
        own=score_of("hotswap_sgd", "paper_network"),
        transformer=score_of("hotswap_sgd", "transformer_text"),
    )


def _of_unknown_length() -> list[tuple[Round, int]]:
    """The rounds of a race without a length, each with how many lanes it begins with."""
    rounds = plan_rounds(ROUNDS, LANES, None, 20)
    return list(zip(rounds, [LANES, *(one.keep for one in rounds)], strict=False))


def copies() -> float:
    """Of the weights, kept beyond AdamW's own while all lanes race, by the largest network measured on a CPU."""
    (file,) = [file for file in kept("race-cost") if file["device"].startswith("CPU")]
    return float(file["rows"][-1]["memory_racing"])


BLOCKS: dict[str, Callable[[], str]] = {
    "when to use it": partial(when, ""),
    "when to use it, from the README": partial(when, "docs/"),
}
