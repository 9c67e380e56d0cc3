"""When to use what: the same advice in the README and on the documentation's first page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarked import kept
from tuning_free import against, leads_are_unsure, mean_of, score_of

from hotswap.optim.racing.grids import LANES
from hotswap.races import race_passes

LONG = 100_000
"""Steps of a run so long that the least length of a round does not matter."""

ADVICE = """
- **Nobody has tuned the network yet, and you know for how many steps you will train: [race]({folder}races.md).**
  `hotswap.Race(AdamW(...), total_steps=...)` trains six copies of the run at different rates and drops the worse ones
  early. That takes {passes:.2f} times the passes of one run and, while all six race, {copies:.0f} times the memory of
  the weights on top of AdamW's own, since each copy has its weights and its AdamW state (`offload=True` keeps them in
  the host's memory). Its rates fall over the last 40 % of the steps; before that, other methods are often ahead, so do
  not stop it early.
- **AdamW may not be the right optimizer: race AdamW and SGD**, `hotswap.Race([adamw, sgd], ...)`, nine copies.
  {with_sgd}
- **You do not want to pay for copies: Prodigy**, which is not ours. Its geometric mean of scores is {prodigy}, that of
  AdamW at its default {adamw}.{unsure}
- **You do not know for how long you will train: Schedule-Free**, which is not ours, **or a race without
  `total_steps`**, evaluated inside of `optimizer.average()`.
  {without_length}
- **You know a good rate and a schedule: none of ours.** Use what you know; that is one run, with nothing to search.
- **You want the training objective itself as low as it goes: `hotswap.presets.adam(model)`.** It has the lowest one at
  equal cost in [a study of the paper's problem]({folder}beyond-the-paper.md), of 28 variants, AdaDelta and well-chosen
  SGD. The benchmark, which asks for validation after shorter runs, does not recommend it: it scores {preset} on the
  paper's own network.
- **You want to study the paper's algorithm: `hotswap.HotSwapSGD(model)`.** It needs no length, no schedule and no rate,
  and drives an objective far down, but it is slow at first: it scores {own} after a few epochs of its own network. It
  is **not** for transformers ({transformer}). The step that lowers the loss of one minibatch most is not the step that
  helps the whole run.
"""


def when(folder: str) -> str:
    """The advice, with links into a folder; numbers are those of the benchmark."""
    return ADVICE.format(
        folder=folder,
        passes=race_passes(LANES, LONG) / LONG,
        copies=copies(),
        with_sgd=against("race_adamw_sgd", "race_adamw"),
        prodigy=mean_of("prodigy"),
        adamw=mean_of("adamw"),
        unsure=f" {said}" if (said := leads_are_unsure("prodigy")) else "",
        without_length=against("race_open", "schedule_free"),
        preset=score_of("preset_adam", "paper_network"),
        own=score_of("hotswap_sgd", "paper_network"),
        transformer=score_of("hotswap_sgd", "transformer_text"),
    )


def copies() -> float:
    """Of the weights, kept beyond AdamW's own while all lanes race, by the largest network measured on a CPU."""
    (file,) = [file for file in kept("race-cost") if file["device"].startswith("CPU")]
    return float(file["rows"][-1]["memory_racing"])


BLOCKS: dict[str, Callable[[], str]] = {
    "when to use it": partial(when, ""),
    "when to use it, from the README": partial(when, "docs/"),
}
