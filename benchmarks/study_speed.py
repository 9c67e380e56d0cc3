"""How fast the paper's study trains as one tensor program, beside single runs one at a time and beside the hardware.

Per batch size: run-epochs per second of the ensemble (216 SGD runs, 3 DUCB, 3 AdaDelta); the time of a step of one run
alone in the same engine, and in an ordinary PyTorch loop, with the factor by which the ensemble is faster, all measured
in the same process; and for SGD the share of two floors. A step of R runs must read
and write R·P parameters seven times (weights forward; gradient written; gradient, velocity and weights read, the last
two written), and do 6 R·P·B floating-point operations. The rates of both are measured here, not taken from a datasheet.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from benchmarks.measuring import describe, devices, keep, seconds
from hotswap import Arms, Backtracking, DiscountedUCB, HotSwapSGD, log_grid
from hotswap.data import load_mnist
from hotswap.ensemble import Ensemble, HotSwapped, Mlp, Sgd, TrainingData, Update, Variant
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron
from hotswap.studies import PAPER, AdaDeltaFamily

EPOCHS = PAPER.epochs
BATCHES = (64, 128, 256, 512, 1024)
GRID = sorted(product((0.9, 0.7, 0.5, 0.0), (1.0, 0.3, 0.1, 0.03, 0.01, 0.003), (0.99, 0.995, 1.0)), reverse=True)


def load(device: torch.device) -> TrainingData:
    data = load_mnist()
    arrays = (data.train_inputs()[:50_000], data.train_labels[:50_000], data.test_inputs(), data.test_labels)
    return TrainingData(*(torch.from_numpy(array).to(device) for array in arrays))


def build(kind: str, runs: int, device: torch.device) -> Update:
    model = Mlp((784, *PAPER_HIDDEN, 10))
    if kind == "sgd":
        settings = sorted((GRID * 3)[:runs] if runs > 1 else [(0.9, 0.1, 0.99)], reverse=True)
        momenta, rates, decays = zip(*settings, strict=True)
        return Sgd(model, model.initial([0] * runs).to(device), rates, decays, momenta)
    theta = model.initial(range(runs)).to(device)
    if kind == "adadelta":
        return AdaDeltaFamily().update(model, theta, ())
    variant = Variant(Arms.of({"lr": log_grid()}), DiscountedUCB(), Backtracking())
    return HotSwapped(model, theta, [(variant, len(theta))])


def step_seconds(kind: str, runs: int, batch: int, data: TrainingData, steps: int) -> float:
    """Mean time of one step of the study, after a short epoch that warms up (and, for DUCB, leaves the sweep behind).

    Epochs that the study records also watch gradient norms; they count as often as there are any.
    """
    ensemble = Ensemble(build(kind, runs, data.train_x.device), data, batch, data_seed=0)
    ensemble.steps = min(ensemble.steps, steps)
    ensemble._order = ensemble._order[: ensemble.steps]
    ensemble.train_epoch(0)
    device = data.train_x.device
    plain, watched = (
        seconds(lambda watch=watch: ensemble.train_epoch(1 + watch, watched=watch), device) for watch in (False, True)
    )
    share = len(PAPER.recorded_epochs()) / EPOCHS
    return ((1 - share) * plain + share * watched) / ensemble.steps


def loop_seconds(kind: str, batch: int, data: TrainingData, steps: int) -> float:
    """Time of one step of one run in an ordinary training loop: a module, an optimizer, nothing captured."""
    network = multilayer_perceptron((784, *PAPER_HIDDEN, 10), seed=0).to(data.train_x.device)
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adadelta": lambda p: torch.optim.Adadelta(p, rho=0.95, eps=1e-6),
        "ducb": HotSwapSGD,
    }[kind](network.parameters())
    order = torch.randint(0, len(data.train_x), (2 * steps, batch), device=data.train_x.device)

    def train(rows: torch.Tensor) -> None:
        for row in rows:
            x, y = data.train_x[row], data.train_y[row]
            if kind == "ducb":
                optimizer.step(lambda x=x, y=y: cross_entropy(network(x), y))
            else:
                optimizer.zero_grad()
                cross_entropy(network(x), y).backward()
                optimizer.step()

    train(order[:steps])
    return seconds(lambda: train(order[steps:]), data.train_x.device) / steps


def ceilings(device: torch.device) -> tuple[float, float]:
    """Bytes per second of a large copy (read plus written), operations per second of a large matrix product."""
    size = 2**28 if device.type == "cuda" else 2**24
    a, b = torch.empty(size, device=device), torch.randn(size, device=device)
    side = 8192 if device.type == "cuda" else 1024
    c, d = torch.randn(side, side, device=device), torch.randn(side, side, device=device)
    copies = sorted(seconds(lambda: a.copy_(b), device) for _ in range(10))[5]
    products = sorted(seconds(lambda: c @ d, device) for _ in range(10))[5]
    return 2 * 4 * size / copies, 2 * side**3 / products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, action="append", help="only these; all five by default")
    parser.add_argument("--runs", type=int, default=216, help="SGD runs of the ensemble")
    parser.add_argument("--steps", type=int, default=195, help="steps to time")
    parser.add_argument("--precision", choices=["tf32", "fp32"], default="tf32")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the numbers there, too, as JSON")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    device = devices()[-1]
    data, (bandwidth, rate) = load(device), ceilings(device)
    size = Mlp((784, *PAPER_HIDDEN, 10)).size
    console = Console(width=150)
    table = Table(
        title=f"{describe(device)}; {bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.0f} TFLOP/s {options.precision}"
    )
    headings = (
        "batch",
        "algorithm",
        "runs",
        "ms per step",
        "run-epochs/s",
        "one run, ms",
        "PyTorch loop, ms",
        "of bytes floor",
    )
    for heading in (*headings, "of FLOP floor", f"minutes for {EPOCHS} epochs"):
        table.add_column(heading, justify="right")
    total, rows = 0.0, []
    for batch in options.batch_size or BATCHES:
        for kind, runs in (("sgd", options.runs), ("adadelta", 3), ("ducb", 3)):
            with console.status(f"batch {batch}, {kind}"):
                taken = step_seconds(kind, runs, batch, data, options.steps)
                single = step_seconds(kind, 1, batch, data, options.steps)
                loop = loop_seconds(kind, batch, data, options.steps)
            steps = 50_000 // batch
            minutes = taken * steps * EPOCHS / 60
            total += minutes
            by_bytes, by_flop = 7 * 4 * runs * size / bandwidth, 6 * runs * size * batch / rate
            floors = (f"{by_bytes / taken:.0%}", f"{by_flop / taken:.0%}") if kind == "sgd" else ("", "")
            times = {"step": taken, "alone": single, "loop": loop, "by_bytes": by_bytes, "by_flop": by_flop}
            rows.append({"batch": batch, "algorithm": kind, "runs": runs, **times})
            speed = runs / taken / steps
            alone = (f"{1e3 * t:.3f} ({t * runs / taken:.1f}x)" for t in (single, loop))
            row = (f"{1e3 * taken:.3f}", f"{speed:.1f}", *alone, *floors)
            table.add_row(str(batch), kind, str(runs), *row, f"{minutes:.1f}")
    table.caption = f"{total:.1f} minutes for all of it, evaluations not counted"
    console.print(table)
    if options.keep is not None:
        ceiling = {"bytes_per_second": bandwidth, "flop_per_second": rate, "precision": options.precision}
        keep(options.keep, "study-speed", device, rows, **ceiling)


if __name__ == "__main__":
    main()
