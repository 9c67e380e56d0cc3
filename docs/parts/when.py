"""When to use what: the same advice in the README and on the documentation's first page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarked import copies, pass_times
from measured import table
from tuning_free import against, leads_are_unsure, mean_of, passes_of, score_of, training_of

from hotswap.optim.racing.grids import LANES, SGD_LANES
from hotswap.races import ROUNDS, Round, plan_rounds, race_passes

LONG = 100_000
"""Steps of a run so long that the least length of a round does not matter."""

SHORT = 320
"""Steps of the first example."""

NOTES = """
If you know a good rate and a schedule, use them: that is one run, with nothing to search.

- *Score* is the geometric mean over the benchmark's workloads, and *at 30 %* the same after 30 % of the budget.
  *Passes* are forward and backward, for each step, by workload; scores have already paid for them. *Copies* are what is
  kept between steps, in copies of the weights: AdamW's are the weights, their gradients and two averages. Those of a
  race are fewer after each of its rounds.
{unsure}- **A race** drops the worse of its copies early. Its rates fall over the last 40 % of the steps. Before that
  other methods are ahead, as the column at 30 % shows, so do not stop it early. It has a warm-up and a decay of its
  own, so leave out your scheduler. `offload=True` keeps the copies in the host's memory. Of a long run it takes
  {passes:.2f} passes a step, of a short one more, {short:.2f} for {steps} steps; with SGD {nine_passes:.2f} and
  {nine_short:.2f}.
- **With SGD or without?** {with_sgd}
- **Prodigy** is one run, and its cosine needs the number of steps, as a race does. Beside one of
  AdamW's, one of its passes takes {prodigy_time}; one of a race
  {race_time}.
- **Without a length**, a race takes {more} passes more than one run, however long that is. {without_length}
- **`hotswap.presets.adam`** has the lowest training objective at equal cost in [a study of the paper's
  problem]({folder}beyond-the-paper.md), of 28 variants, AdaDelta and well-chosen SGD. That is one problem, on which a
  network can fit its data perfectly. The benchmark does not recommend it: {training}.
- **`hotswap.HotSwapSGD`** needs no length, no schedule and no rate, and drives an objective far down, but it is slow at
  first: it scores {own} after a few epochs of its own network, and it is **not** for transformers ({transformer}). The
  step that lowers the loss of one minibatch most is not the step that helps the whole run. Where the loss can go below
  zero, it and the preset need `reward=hotswap.RelativeReduction()`; without it such a step raises an error, as on
  `gaussian_regression` below.
"""


def when(folder: str) -> str:
    """A row for each case, and what to know about it; with links into a folder. Numbers are the benchmark's."""
    race = f"[race]({folder}races.md)"
    more = sum((one.end - one.begin) * (alive - 1) for one, alive in _of_unknown_length())
    rows = [
        _row("you know for how many steps you will train", f"a {race}: `Race(adamw, total_steps=...)`", "race_adamw"),
        _row(
            "and AdamW may not be the right optimizer",
            "a race of both: `Race([adamw, sgd], total_steps=...)`",
            "race_adamw_sgd",
        ),
        _row("and you have no memory for a race", "Prodigy at rate 1 with a cosine, which is not ours", "prodigy"),
        _row("you may stop at any time", "Schedule-Free AdamW, which is not ours", "schedule_free"),
        _row("and the end matters most", "a race without `total_steps`", "race_open"),
        _row("you want the lowest training objective", "`hotswap.presets.adam(model)`", "preset_adam"),
        _row("you study the paper's algorithm", "`hotswap.HotSwapSGD(model)`", "hotswap_sgd"),
        _row("*for comparison*", "AdamW at its default rate", "adamw"),
    ]
    headings = ("nobody has tuned the network, and ...", "use", "score", "at 30 %", "passes", "copies")
    unsure = leads_are_unsure("prodigy")
    notes = NOTES.format(
        folder=folder,
        passes=race_passes(LANES, LONG) / LONG,
        nine_passes=race_passes(LANES + SGD_LANES, LONG) / LONG,
        short=race_passes(LANES, SHORT) / SHORT,
        nine_short=race_passes(LANES + SGD_LANES, SHORT) / SHORT,
        steps=SHORT,
        more=more,
        prodigy_time=pass_times("prodigy"),
        race_time=pass_times("race_adamw", "race_adamw_sgd"),
        with_sgd=against("race_adamw_sgd", "race_adamw"),
        unsure=f"- {unsure}\n" if unsure else "",
        training=training_of("preset_adam", "paper_network", "adamw"),
        without_length=against("race_open", "schedule_free"),
        own=score_of("hotswap_sgd", "paper_network"),
        transformer=score_of("hotswap_sgd", "transformer_text"),
    )
    return f"{table(headings, rows, left=2)}\n{notes}"


def _row(case: str, use: str, method: str) -> tuple[str, ...]:
    return (case, use, mean_of(method), mean_of(method, 30), passes_of(method), copies(method))


def _of_unknown_length() -> list[tuple[Round, int]]:
    """The rounds of a race without a length, each with how many lanes it begins with."""
    rounds = plan_rounds(ROUNDS, LANES, None, 20)
    return list(zip(rounds, [LANES, *(one.keep for one in rounds)], strict=False))


BLOCKS: dict[str, Callable[[], str]] = {
    "when to use it": partial(when, ""),
    "when to use it, from the README": partial(when, "docs/"),
}
