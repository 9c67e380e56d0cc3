"""Whether a hot-swapped unit of the paper's study comes out bit for bit when it is run again.

Trains the unit in two processes, each with an empty cache of compiled kernels, so that nothing of the first is left to
the second. With `--after`, the second process has trained another batch size before: as in a study that was interrupted
and goes on with another unit, its kernels must not depend on what was compiled before. Prints the SHA-256 of the
parameters and whether the losses of every epoch are equal; the exit status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import describe, devices
from benchmarks.study_speed import build, load
from hotswap.ensemble import Ensemble, TrainingData


def synthetic(device: torch.device, count: int = 50_000) -> TrainingData:
    """Inputs like MNIST's in shape and range, with labels that a network can learn."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count + 10_000, 784, generator=generator)
    y = ((x - 0.5) @ torch.randn(784, 10, generator=generator)).argmax(1)
    return TrainingData(*(tensor.to(device) for tensor in (x[:count], y[:count], x[count:], y[count:])))


def train(options: argparse.Namespace) -> dict[str, Any]:
    """The unit from its first epoch on: the checksum of θ and the losses of every epoch."""
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    device = devices()[-1]
    data = synthetic(device, options.samples) if options.synthetic else load(device)
    if options.after:
        Ensemble(build(options.kind, 3, device), data, options.after, data_seed=0).train_epoch(0)
    ensemble = Ensemble(build(options.kind, 3, device), data, options.batch_size, data_seed=0)
    losses = []
    for epoch in range(options.epochs):
        ensemble.train_epoch(epoch)
        losses.append(ensemble.measure().train_nll)
    theta = ensemble.update.theta.cpu().numpy().tobytes()
    return {"theta": hashlib.sha256(theta).hexdigest(), "losses": losses, "device": describe(device)}


def in_a_process_of_its_own(arguments: list[str]) -> dict[str, Any]:
    """What `train` gives in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, "-m", "benchmarks.rerun", *arguments, "--result", str(result)]
        subprocess.run(command, check=True, env={**os.environ, **caches})
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--kind", choices=["ducb", "sgd", "adadelta"], default="ducb")
    parser.add_argument("--precision", choices=["tf32", "fp32"], default="tf32")
    parser.add_argument("--synthetic", action="store_true", help="made-up data, where MNIST is not at hand")
    parser.add_argument("--samples", type=int, default=50_000, help="how many training samples to make up")
    parser.add_argument("--after", type=int, default=0, metavar="BATCH", help="the second run trains this one first")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result is not None:
        options.result.write_text(json.dumps(train(options)))
        return
    same = ["--batch-size", str(options.batch_size), "--epochs", str(options.epochs), "--kind", options.kind]
    same += ["--precision", options.precision, "--samples", str(options.samples)]
    same += ["--synthetic"] if options.synthetic else []
    one = in_a_process_of_its_own(same)
    other = in_a_process_of_its_own([*same, "--after", str(options.after)])
    print(one["device"])
    for number, found in enumerate((one, other), start=1):
        print(f"run {number}: SHA-256 of the parameters {found['theta']}, last losses {found['losses'][-1]}")
    pairs = zip(one["losses"], other["losses"], strict=True)
    differs = [epoch for epoch, (ours, theirs) in enumerate(pairs, start=1) if ours != theirs]
    equal = one["theta"] == other["theta"] and not differs
    print("bit for bit the same" if equal else f"different; the losses of {len(differs)} epochs are: {differs}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
