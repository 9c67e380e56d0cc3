"""Draw the pictures of the documentation: `python docs/pictures/draw.py`.

They come from small training runs: scikit-learn's digits, a network of 64-32-10 sigmoid units, minibatches of 64, one
seed. `docs/numbers.py` draws the pictures of the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy

from hotswap import HotSwapSGD, Race, StepRecord
from hotswap.data import load_digits
from hotswap.networks import multilayer_perceptron
from hotswap.optim import Statistics
from hotswap.race import Standings

HERE = Path(__file__).parent
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = (  # Okabe and Ito, and a grey
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#8A8A8A",
)
STEPS, BATCH, SEED = 3000, 64, 0
RACE_STEPS = 2000
MOMENTS = (40, 1390)
"""The numbers of steps after which the bandit is looked at."""
ALONG = np.geomspace(1e-3, 1e2, 400)
STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.size": 10.5,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "hotswap",
}


class Problem:
    """A network, a row of minibatches that is the same for everyone who asks, and the objective now and then."""

    def __init__(self, every: int = 50) -> None:
        data = load_digits()
        self.x, self.y = torch.from_numpy(data.train_inputs()), torch.from_numpy(data.train_labels)
        self.model = multilayer_perceptron((data.features, 32, data.classes), seed=SEED)
        self.order, self.every = torch.Generator().manual_seed(SEED), every
        self.objectives: dict[int, float] = {}
        """The loss over all training images, by the number of steps."""

    def batches(self, steps: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of each step and its minibatch; the objective is measured between steps."""
        for step in range(1, steps + 1):
            rows = torch.randint(len(self.x), (BATCH,), generator=self.order)
            yield step, self.x[rows], self.y[rows]
            if step % self.every == 0:
                with torch.no_grad():
                    self.objectives[step] = float(cross_entropy(self.model(self.x), self.y))


@dataclass
class Run:
    """A hot-swapped training run, and a step of which the whole loss curve is known."""

    objectives: dict[int, float]
    records: list[StepRecord] = field(default_factory=list)
    statistics: dict[int, Statistics] = field(default_factory=dict)
    walk: tuple[StepRecord, int, np.ndarray] | None = None
    """A step, its number, and the losses along its gradient at the rates of `ALONG`."""

    @property
    def rates(self) -> np.ndarray:
        """The rates, arm by arm."""
        return np.array([row.values["lr"] for row in next(iter(self.statistics.values()))], dtype=float)


def hot_swapped() -> Run:
    """Train with HotSwapSGD; keep the bandit's table at the moments, and the loss curve of a step that tells much.

    That is a step after the sweep whose first trial is worse than its start, and whose walk is of four trials.
    """
    problem = Problem()
    run, optimizer = Run(problem.objectives), HotSwapSGD(problem.model.parameters())
    for step, x, y in problem.batches(STEPS):
        before = {name: weights.detach().clone() for name, weights in problem.model.named_parameters()}
        optimizer.step(lambda x=x, y=y: cross_entropy(problem.model(x), y))
        record = optimizer.last_step
        assert record is not None
        run.records.append(record)
        if step in MOMENTS:
            run.statistics[step] = optimizer.statistics()
        told = len(record.trials) == 4 and record.trials[0][1] > record.loss_before
        if run.walk is None and step > 101 and told:
            run.walk = record, step, loss_curve(problem, before, x, y)
    return run


def plain(rate: float) -> dict[int, float]:
    """The objectives of torch's SGD at one rate."""
    problem = Problem()
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=rate)
    for _, x, y in problem.batches(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(problem.model(x), y))
        optimizer.step()
    return problem.objectives


def loss_curve(problem: Problem, weights: dict[str, Tensor], x: Tensor, y: Tensor) -> np.ndarray:
    """The minibatch's loss along its gradient at these weights, at many rates."""

    def loss(at: dict[str, Tensor]) -> Tensor:
        return cross_entropy(functional_call(problem.model, at, x), y)

    slopes = grad(loss)(weights)
    moved = ({name: weights[name] - float(rate) * slopes[name] for name in weights} for rate in ALONG)
    return np.array([float(loss(at)) for at in moved])


def draw_walk(run: Run) -> None:
    """One step's search on the loss along the gradient."""
    assert run.walk is not None
    (record, step, losses), arms = run.walk, run.rates
    figure, axes = plt.subplots(figsize=(8, 4.6))
    axes.plot(ALONG, losses, color=GREY, lw=1.6, zorder=1)
    inside = arms[(arms > ALONG[0]) & (arms < ALONG[-1])]
    axes.plot(inside, np.interp(inside, ALONG, losses), "o", ms=4.5, color="white", mec=GREY, zorder=2)
    axes.axhline(record.loss_before, color=BLACK, lw=1, ls=(0, (5, 4)), zorder=1)
    axes.text(1.2e-3, record.loss_before * 1.02, "loss before the step: the one to beat", va="bottom")
    for number, (arm, loss) in enumerate(record.trials, start=1):
        mark, color = ("s", GREEN) if arm == record.arm else ("o", BLUE)
        axes.plot(arms[arm], loss, mark, ms=13, color=color, zorder=3)
        axes.text(arms[arm], loss, str(number), color="white", ha="center", va="center", fontweight="bold", zorder=4)
    annotate_walk(axes, record, arms)
    across, span = "learning rate (small circles: the rates of the grid)", record.loss_before - min(losses)
    axes.set(xscale="log", xlabel=across, ylabel="loss on this minibatch", xlim=(ALONG[0], ALONG[-1]))
    axes.set_ylim(min(losses) - 0.45 * span, record.loss_before + 0.75 * span)
    axes.set_title(f"Step {step}: four trials on one minibatch, from the proposed rate to smaller ones", pad=12)
    save(figure, "walk")


def annotate_walk(axes: Axes, record: StepRecord, arms: np.ndarray) -> None:
    """Say what happened in each trial."""
    said = (
        ("trial 1, the bandit's proposal:\nworse than before, too large", (26, -6), "left", BLUE),
        ("trial 2: better than before", (22, -4), "left", BLUE),
        ("trial 3: the best, so this rate is taken", (0, -30), "center", GREEN),
        ("trial 4: the loss rises\nagain, so the walk ends", (-36, -8), "right", BLUE),
    )
    for (arm, loss), (text, offset, side, color) in zip(record.trials, said, strict=True):
        axes.annotate(
            text,
            (arms[arm], loss),
            offset,
            textcoords="offset points",
            ha=side,
            color=color,
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.8, "shrinkB": 6},
        )


def draw_index(run: Run) -> None:
    """What the bandit knows of each rate, at several moments."""
    figure, grid = plt.subplots(2, len(MOMENTS), figsize=(9, 5.6), sharex=True, sharey="row", height_ratios=(2, 1))
    for column, moment in enumerate(MOMENTS):
        draw_moment(grid[0, column], grid[1, column], run, moment)
    grid[0, 0].set_ylabel("reward per trial\n(above 0: the loss fell)")
    grid[1, 0].set_ylabel("trials remembered\n(old ones fade)")
    grid[0, 0].set_ylim(-0.32, 0.72)
    grid[0, 0].set_xlim(5e-7, 2e2)
    grid[0, 1].text(
        6e-7,
        0.42,
        "Widths of rates not tried for long\nhave nearly caught up with the best:\nthese will soon be tried again.",
        va="center",
    )
    grid[0, 0].legend(loc="upper left", handlelength=1.2)
    save(figure, "index")


def draw_moment(top: Axes, bottom: Axes, run: Run, moment: int) -> None:
    """One column: mean, width and index above, counts below."""
    rows, rates = run.statistics[moment], run.rates
    means, counts, index = (np.array([getattr(row, name) for row in rows]) for name in ("mean", "count", "index"))
    best, shown = int(index.argmax()), means > -0.3
    top.axhline(0, color=GREY, lw=0.8)
    top.vlines(
        rates[shown], means[shown], index[shown], color=ORANGE, lw=4, label="confidence width: grows while not tried"
    )
    top.plot(rates[shown], means[shown], "o", ms=5, color=BLUE, label="mean of the rewards remembered")
    top.plot(rates[~shown], np.full((~shown).sum(), -0.29), "v", ms=6, color=BLUE, label="mean below −0.3")
    top.plot(rates[best], index[best], "D", ms=9, color=RED, zorder=3, label="largest index (mean + width)")
    top.text(rates[best], index[best] + 0.05, f"{rates[best]:.2g}", color=RED, ha="center", fontweight="bold")
    top.set_title(f"After {moment:,} steps")
    bottom.bar(rates, counts, width=rates * 0.4, color=SKY)
    bottom.set(xscale="log", xlabel="learning rate", yscale="log")
    bottom.set_ylim(1e-7, 1e3)


def draw_training(run: Run, fixed: dict[float, dict[int, float]]) -> None:
    """Rates and losses over a whole run."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6.6), sharex=True)
    steps = np.arange(1, STEPS + 1)
    taken = np.array([record.values["lr"] for record in run.records], dtype=float)
    taken[taken == 0] = np.nan
    top.plot(steps, taken, ".", ms=5, color=BLUE, rasterized=True)
    top.set(yscale="log", ylabel="learning rate", ylim=(3e-7, 3e2))
    top.set_title("The rate that each step took")
    arrow = {"arrowstyle": "-", "color": GREY, "lw": 0.8}
    where = {"textcoords": "data", "va": "center", "arrowprops": arrow}
    top.annotate("sweep: a start from each rate", (40, 1e-5), (180, 1e-5), **where)
    top.annotate("rates that have faded from\nmemory are tried again", (1425, 1e-3), (380, 1e-3), **where)
    top.annotate("a larger rate turns\nout to be better", (1765, 4), (1800, 60), **where)
    ours = run.objectives
    bottom.plot(list(ours), list(ours.values()), color=BLUE, lw=2.4)
    bottom.text(STEPS * 1.01, ours[STEPS], "HotSwapSGD", color=BLUE, va="center", fontweight="bold")
    looks = ((RED, (0, (6, 2)), 1.45), (GREEN, "-.", 1.0), (PINK, ":", 0.72))
    for (rate, other), (color, style, shift) in zip(fixed.items(), looks, strict=True):
        bottom.plot(list(other), list(other.values()), color=color, lw=1.8, ls=style)
        bottom.text(STEPS * 1.01, other[STEPS] * shift, f"SGD, rate {rate:g}", color=color, va="center")
    bottom.set(yscale="log", xlabel="steps", ylabel="loss on all training images", xlim=(-20, STEPS * 1.19))
    bottom.set_title("The loss, beside SGD at three fixed rates")
    bottom.set_xticks(range(0, STEPS + 1, 500))
    save(figure, "training")


@dataclass
class Raced:
    """A race: the loss on all training images before each step, and whose step it is."""

    objectives: list[float]
    lanes: list[str]
    standings: Standings

    def turns(self, lane: str) -> list[range]:
        """The steps of a lane, turn by turn, counted from 0."""
        turns, start = [], 0
        for name, steps in groupby(self.lanes):
            turns.append((name, range(start, start := start + len(list(steps)))))
        return [steps for name, steps in turns if name == lane]


def raced() -> Raced:
    """Race an SGD that somebody brought beside the default lanes of a CPU."""
    problem, lanes = Problem(every=1), list[str]()
    own = torch.optim.SGD(problem.model.parameters(), lr=0.1, momentum=0.9)
    race = Race(problem.model, own, total_steps=RACE_STEPS)
    with torch.no_grad():
        first = float(cross_entropy(problem.model(problem.x), problem.y))
    for _, x, y in problem.batches(RACE_STEPS):
        lanes.append(race.current.name)
        loss = cross_entropy(problem.model(x), y)
        torch.autograd.backward(loss)
        race.step(loss)
        race.zero_grad()
    return Raced([first, *list(problem.objectives.values())[:-1]], lanes, race.standings())


def draw_race(run: Raced) -> None:
    """Losses of lanes that take turns, and whose turn it is: the race in close-up, and the whole run."""
    colors = dict(zip(dict.fromkeys(run.lanes), (PINK, GREEN, ORANGE, BLUE), strict=True))
    over = max(row.dropped_at for row in run.standings if row.dropped_at is not None)
    figure, grid = plt.subplots(2, 2, figsize=(9, 5), sharex="col", height_ratios=(1, 9), width_ratios=(5, 2))
    for (strip, axes), end in zip(grid.T, (round(1.6 * over), RACE_STEPS), strict=True):
        for lane, color in colors.items():
            draw_lane(strip, axes, run, lane, color)
        strip.set(ylim=(0, 1), yticks=[])
        strip.spines[["left", "bottom"]].set_visible(False)
        strip.tick_params(bottom=False)
        axes.set(yscale="log", xlabel="steps of the run", xlim=(0, end))
    for axes in grid[1]:
        axes.set_ylim(min(run.objectives) / 1.6, max(run.objectives) * 1.6)
    grid[0, 0].set_title("The race: which lane has the model, and the loss")
    grid[0, 1].set_title("The whole run")
    grid[1, 0].set_ylabel("loss on all training images")
    grid[1, 1].tick_params(labelleft=False)
    annotate_race(grid[1, 0], run, colors)
    save(figure, "race")


def draw_lane(strip: Axes, axes: Axes, run: Raced, lane: str, color: str) -> None:
    """A lane's turns in the strip, and its loss below: a line while it trains, dots while it waits."""
    turns, won = run.turns(lane), run.standings[0].name == lane
    strip.broken_barh([(turn.start, len(turn)) for turn in turns], (0, 1), color=color, lw=0)
    for turn in turns:
        axes.plot(turn, [run.objectives[step] for step in turn], color=color, lw=2.2, zorder=3 if won else 2)
    for earlier, later in pairwise(turns):
        ends = (earlier[-1], later[0])
        axes.plot(ends, [run.objectives[step] for step in ends], color=color, ls=(0, (1, 2.5)), lw=1.2, zorder=1)
    if not won:
        last = turns[-1][-1]
        axes.plot(last, run.objectives[last], "X", ms=10, color=color, mec="white", zorder=4)


def annotate_race(axes: Axes, run: Raced, colors: dict[str, str]) -> None:
    """Name each lane: where it was dropped, or at the end of its line."""
    right = int(axes.get_xlim()[1])
    for row in run.standings:
        won, last = row.dropped_at is None, run.turns(row.name)[-1][-1]
        step = right if won else last
        axes.annotate(
            f"{row.name} wins" if won else f"{row.name}, dropped at step {row.dropped_at}",
            (step, run.objectives[step]),
            (0, -18) if won else (10, 5),
            textcoords="offset points",
            ha="right" if won else "left",
            va="center",
            color=colors[row.name],
            fontweight="bold" if won else "normal",
        )


def save(figure: plt.Figure, name: str) -> None:
    """Write an SVG that is the same every time."""
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, dpi=200)
    plt.close(figure)


def main() -> None:
    """Draw them all."""
    torch.set_num_threads(1)
    mpl.use("Agg")
    mpl.rcParams.update(STYLE)
    run = hot_swapped()
    draw_walk(run)
    draw_index(run)
    draw_training(run, {rate: plain(rate) for rate in (10.0, 1.0, 0.1)})
    draw_race(raced())


if __name__ == "__main__":
    main()
