"""How large the largest rate may be around AdamW: `python -m benchmarks.adam_grids --keep results/benchmarks`.

A step of Adam has a length that hardly depends on the gradient, so its rate decides it alone, and a step that is too
long may lower the loss of its own minibatch all the same: the search, which sees no other, takes it. Here a small LSTM
and a small transformer predict the next word of Python's standard library, with hot-swapped AdamW over grids of four
rates a decade down to 1e-6 that differ in their largest rate, and beside them AdamW with torch's default rate. All take
the same number of steps. What counts is the loss on text that was held out.

With `--keep`, runs that are in the file already are not trained again, so the command can be stopped and given again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks.measuring import describe, keep
from hotswap.bench.workloads.base import seeded
from hotswap.bench.workloads.text import sources

LENGTH, BATCH, WINDOWS, WIDTH = 20, 16, 300, 48
VOCABULARY = 2000
"""The most frequent words, names, numbers and signs; the last stands for all others."""
SMALLEST = 1e-6
TOPS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
PLAIN = "AdamW, 1e-3"
CPU = torch.device("cpu")


@cache
def words() -> tuple[Tensor, Tensor]:
    """The words of the text, as numbers: those to train on, and those held out."""
    train, held_out = (re.findall(rb"\w+|[^\w ]", text) for text in sources())
    frequent = {word: place for place, (word, _) in enumerate(Counter(train).most_common(VOCABULARY - 1))}
    numbers = ([frequent.get(word, VOCABULARY - 1) for word in part] for part in (train, held_out))
    return tuple(map(torch.tensor, numbers))  # type: ignore[return-value]  # there are two


def windows(text: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Windows of the text, and the words that follow each of theirs."""
    found = text[starts[:, None] + torch.arange(LENGTH + 1)]
    return found[:, :-1], found[:, 1:]


class Model(nn.Module):
    """Words are embedded, mixed in one direction of time, and scored."""

    def __init__(self, mixing: nn.Module) -> None:
        super().__init__()
        self.embed, self.mixing, self.head = nn.Embedding(VOCABULARY, WIDTH), mixing, nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.mixing(self.embed(x)))
        return scores.transpose(1, 2)


class Recurrent(nn.Module):
    """One layer of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.net(x)[0]
        return mixed


class Attentive(nn.Module):
    """Two blocks of causal attention, with learned positions and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Embedding(LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.blocks(x + self.place.weight, mask=self.mask, is_causal=True)
        return mixed


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: Model(Recurrent()),
    "transformer": lambda: Model(Attentive()),
}


def grid(top: float) -> list[float]:
    """Four rates a decade, from `top` down."""
    return hotswap.log_grid(top, SMALLEST, round(4 * math.log10(top / SMALLEST)) + 1)


METHODS: dict[str, float | None] = {PLAIN: None, **{f"top {top:g}": top for top in TOPS}}


def trained(network: str, method: str, seed: int, steps: int) -> dict[str, Any]:
    """One run, and what it came to."""
    (text, held_out), top = words(), METHODS[method]
    model = seeded(NETWORKS[network], seed)
    base = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer = base if top is None else hotswap.HotSwap(base, {"lr": grid(top)}, module=model)
    torch.manual_seed(seed)
    rates: list[float] = []
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x, y = windows(text, torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=order))
        if isinstance(optimizer, hotswap.HotSwap):
            optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
            assert optimizer.last_step is not None
            rates.append(float(optimizer.last_step.values["lr"]))  # type: ignore[arg-type]
        else:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()

    model.eval()
    with torch.no_grad():
        x, y = windows(held_out, torch.linspace(0, len(held_out) - LENGTH - 2, WINDOWS).long())
        loss = cross_entropy(model(x), y).item()
    return {
        "network": network,
        "method": method,
        "seed": seed,
        "steps": steps,
        "loss": loss,
        "median_rate": median(rates) if rates else None,
        "at_top": mean(rate == max(grid(top)) for rate in rates) if top is not None else None,
    }


def known(folder: Path | None) -> list[dict[str, Any]]:
    """The runs that a stopped command has left."""
    file = None if folder is None else folder / "adam-grids-cpu.json"
    return json.loads(file.read_text())["rows"] if file is not None and file.exists() else []


def summary(rows: list[dict[str, Any]]) -> Table:
    """The losses, each as the mean over seeds."""
    table = Table(title=describe(CPU), caption="loss per word on held-out text, mean and largest over seeds")
    for column in ("method", *NETWORKS):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method in METHODS:
        cells = []
        for network in NETWORKS:
            losses = [row["loss"] for row in rows if (row["network"], row["method"]) == (network, method)]
            cells.append(f"{mean(losses):.3f}, {max(losses):.3f}" if losses else "")
        table.add_row(method, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="steps of each run")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each method")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    rows = [row for row in known(options.keep) if row["steps"] == options.steps]
    there = {(row["network"], row["method"], row["seed"]) for row in rows}
    wanted = [(n, m, s) for s in range(options.seeds) for n in NETWORKS for m in METHODS if (n, m, s) not in there]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("training", total=len(wanted))
        for network, method, seed in wanted:
            progress.update(task, description=f"{network}, {method}, seed {seed}")
            rows.append(trained(network, method, seed, options.steps))
            if options.keep is not None:
                keep(options.keep, "adam-grids", CPU, rows)
            progress.advance(task)
    Console().print(summary(rows))


if __name__ == "__main__":
    main()
