"""When to use what: the same advice in the README and on the documentation's first page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarked import copies, pass_times
from measured import table
from tuning_free import mean_of, passes_of, score_of, training_of

NOTES = """
If you know a good rate and a schedule, use them: that is one run, with nothing to search.

- *Score* is the geometric mean over the benchmark's workloads, and *at 30 %* the same after 30 % of the budget.
  *Passes* are forward and backward, for each step, by workload; scores have already paid for them. *Copies* are what is
  kept between steps, in copies of the weights: AdamW's are the weights, their gradients and two averages.
- **A race** trains for as many steps as any other method; the steps of its losing lanes are part of its score. On the
  benchmark its lanes are Muon's on every device. On a CPU ask for them: `hotswap.lanes(model, muon=True)`. There a
  step of Muon can take longer than the forward and backward pass of a small network.
- **Prodigy** is one run, and its cosine needs the number of steps. Beside one of AdamW's, one of its
  passes takes {prodigy_time}.
- **`hotswap.presets.adam`** has the lowest training objective at equal cost in [a study of the paper's
  problem]({folder}beyond-the-paper.md), of 28 variants, AdaDelta and well-chosen SGD. That is one problem, on which a
  network can fit its data perfectly. The benchmark does not recommend it: after its few epochs of the same network the
  training loss is {training}, and AdamW's is {adamw}.
- **`hotswap.HotSwapSGD`** needs no length, no schedule and no rate, and drives an objective far down, but it is slow at
  first: it scores {own} after a few epochs of its own network, and it is **not** for transformers ({transformer}). The
  step that lowers the loss of one minibatch most is not the step that helps the whole run. Where the loss can go below
  zero, it and the preset need `reward=hotswap.RelativeReduction()`; without it such a step raises an error, as on
  `gaussian_regression` below.
"""

LENGTH, NO_LENGTH, COMPARISON = (
    "you know for how many steps you will train",
    "you may stop at any time",
    "*for comparison*",
)

CASES = (
    (LENGTH, "a [race]({folder}races.md): `Race(model, total_steps=...)`", "race"),
    (LENGTH, "Prodigy at rate 1 with a cosine, which is not ours", "prodigy"),
    (NO_LENGTH, "a race without `total_steps`, evaluated under `eval()`", "race_open"),
    (NO_LENGTH, "Schedule-Free AdamW, which is not ours", "schedule_free"),
    ("you want the lowest training objective", "`hotswap.presets.adam(model)`", "preset_adam"),
    ("you study the paper's algorithm", "`hotswap.HotSwapSGD(model)`", "hotswap_sgd"),
    (COMPARISON, "`hotswap.Muon(model)` with the schedule of a race, and no race", "muon"),
    (COMPARISON, "AdamW at its default rate", "adamw"),
)
"""The case, the advice, and the benchmark's name of the method."""


def when(folder: str) -> str:
    """A row for each case, and what to know about it; with links into a folder. Numbers are the benchmark's."""
    rows = [
        (case, use.format(folder=folder), mean_of(method), mean_of(method, 30), passes_of(method), copies(method))
        for case, use, method in CASES
    ]
    headings = ("nobody has tuned the network, and ...", "use", "score", "at 30 %", "passes", "copies")
    notes = NOTES.format(
        folder=folder,
        prodigy_time=pass_times("prodigy"),
        training=training_of("preset_adam", "paper_network"),
        adamw=training_of("adamw", "paper_network"),
        own=score_of("hotswap_sgd", "paper_network"),
        transformer=score_of("hotswap_sgd", "transformer_text"),
    )
    return f"{table(headings, rows, left=2)}\n{notes}"


BLOCKS: dict[str, Callable[[], str]] = {
    "when to use it": partial(when, ""),
    "when to use it, from the README": partial(when, "docs/"),
}
