"""When to use what: the advice in the README and on the documentation's first page."""

from __future__ import annotations

from collections.abc import Callable

from benchmarked import copies, pass_times
from measured import table
from tuning_free import mean_of, passes_of, score_of, training_of, where_from, worst_of

NOTES = """
- *Passes* are forward and backward, for each step, by workload; scores have already paid for them. *Copies* are what is
  kept between steps, in copies of the weights: AdamW's are the weights, their gradients and two averages.
- **Prodigy** is one run, and its cosine needs the number of steps. Beside one of AdamW's, one of its
  passes takes {prodigy_time}.
- **`hotswap.presets.adam`** has the lowest training objective at equal cost in [a study of the paper's
  problem](beyond-the-paper.md), of 28 variants, AdaDelta and well-chosen SGD. That is one problem, on which a
  network can fit its data perfectly. The benchmark does not recommend it: after its few epochs of the same network the
  training loss is {training}, and AdamW's is {adamw}.
- **`hotswap.HotSwapSGD`** needs no length, no schedule and no rate, and drives an objective far down, but it is slow at
  first: it scores {own} after a few epochs of its own network, and it is **not** for transformers ({transformer}). The
  step that lowers the loss of one minibatch most is not the step that helps the whole run. Where the loss can go below
  zero, it and the preset need `reward=hotswap.RelativeReduction()`; without it such a step raises an error, as on
  `gaussian_regression`.
"""

CASES = (
    ("how many steps the run has", "`Race(model, total_steps=...)`", "race"),
    ("nothing; you may stop at any time", "`Race(model)`, evaluated under `eval()`", "race_open"),
    ("that Muon suits your network", "`Race(model, [Muon(model)], total_steps=...)`", "muon"),
    ("that a low training objective is the goal", "`presets.adam(model)`", "preset_adam"),
    ("the paper, and want its algorithm", "`HotSwapSGD(model)`", "hotswap_sgd"),
)
"""The case, the advice, and the benchmark's name of the method."""

OTHERS = (
    ("Prodigy, rate 1, with a cosine", "prodigy"),
    ("Schedule-Free AdamW", "schedule_free"),
    ("AdamW at its default rate", "adamw"),
)
"""These are not ours."""


def advice() -> str:
    """A row for each case, the other methods below, and where the numbers come from. Numbers are the benchmark's."""
    cases = (*CASES, *(("*others*", use, method) for use, method in OTHERS))
    rows = [(case, use, mean_of(method), worst_of(method), mean_of(method, 30)) for case, use, method in cases]
    headings = ("you know ...", "use", "score", "worst", "after 30 %")
    return f"{table(headings, rows, left=2)}\n\n{where_from()}"


def notes() -> str:
    """What else to know about these methods."""
    cases = (*((use, method) for _, use, method in CASES), *OTHERS)
    shown = table(("", "passes", "copies"), [(use, passes_of(method), copies(method)) for use, method in cases])
    told = NOTES.format(
        prodigy_time=pass_times("prodigy"),
        training=training_of("preset_adam", "paper_network"),
        adamw=training_of("adamw", "paper_network"),
        own=score_of("hotswap_sgd", "paper_network"),
        transformer=score_of("hotswap_sgd", "transformer_text"),
    )
    return f"{shown}\n{told}"


BLOCKS: dict[str, Callable[[], str]] = {"advice": advice, "notes on advice": notes}
