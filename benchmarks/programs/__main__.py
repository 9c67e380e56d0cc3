"""Programs that others wrote, with their own optimizer and with another one.

    python -m benchmarks.programs --sources REPOSITORIES --out RUNS
    python -m benchmarks.programs --sources REPOSITORIES --out RUNS --program mnist --seed 0 --optimizer race
    python -m benchmarks.programs --sources REPOSITORIES --take SOURCES
    python -m benchmarks.programs --out RUNS --keep results/programs

REPOSITORIES has a clone of each repository, bare or not, as `OWNER+NAME` or `OWNER+NAME/repo`. `--take` copies the
programs out of them, into a folder that serves as `--sources` on another machine. A run copies a program into a
temporary folder, applies its diffs and starts a process. It is stored in a file of its own, with the last validation
number that the program has printed, and is not run again. `--keep` writes the table that the documentation shows.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.measuring import asked_for, origin
from benchmarks.programs.diffs import DiffError, Hunk, applied, changed_lines, hunks_of
from benchmarks.programs.listed import COMMITS, PROGRAMS, Program
from hotswap.files import write_text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPTIMIZERS = ("own", "race", "prodigy", "schedule_free")
PACKAGES = ("hotswap", "prodigyopt", "schedulefree", "lightning", "accelerate", "transformers", "skorch")
LONGEST = 600
"""Seconds after which a program is stopped."""


class Run(NamedTuple):
    """One training."""

    program: Program
    optimizer: str
    seed: int

    @property
    def file(self) -> str:
        return f"{self.program.name}~{self.optimizer}~{self.seed}.json"


def hunks(program: Program, kind: str) -> list[Hunk]:
    """The lines that a diff of a program changes; none where there is no such diff."""
    path = HERE / f"{program.name}.{kind}.diff"
    return hunks_of(path) if path.is_file() else []


def copied(program: Program, sources: Path, into: Path) -> None:
    """Copy a program's folder out of its repository, or out of a folder that `--take` has written."""
    place = sources / program.source.replace("/", "+")
    for git in (place, place / "repo", place / ".git"):
        if (git / "HEAD").is_file():
            files = f"{program.folder}/*{Path(program.script).suffix}".removeprefix("./")  # some repositories have data
            command = ["git", f"--git-dir={git}", "archive", COMMITS[program.source], files]
            packed = subprocess.run(command, capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(into, filter="data")
            return
    if not (place / program.folder).is_dir():
        raise DiffError(f"--sources {sources}: it has no {place.name}, as a repository or with {program.folder}.")
    shutil.copytree(place / program.folder, into / program.folder, dirs_exist_ok=True)


def changed(program: Program, optimizer: str, folder: Path) -> Path:
    """Apply the diffs of a run to a copy of the program; the script that is to be started."""
    script = folder / program.script
    if script.suffix == ".ipynb":
        cells = json.loads(script.read_text(encoding="utf-8"))["cells"]
        code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        script = script.with_suffix(".py")
        script.write_text("\n".join(code), encoding="utf-8")
    every = [*hunks(program, "data"), *hunks(program, optimizer)]
    for name in {hunk.file for hunk in every}:
        text = (folder / name).read_text(encoding="utf-8")
        new = applied(text, [hunk for hunk in every if hunk.file == name])
        (folder / name).write_text(new, encoding="utf-8")
    return script


def started(run: Run, sources: Path, device: str) -> dict[str, Any]:
    """Run a program in a process of its own: what came of it."""
    program = run.program
    with tempfile.TemporaryDirectory() as temporary:
        copied(program, sources, Path(temporary))
        folder = Path(temporary) / program.folder
        script = changed(program, run.optimizer, folder)
        further = program.cpu if device == "cpu" else program.cuda
        arguments = shlex.split(f"{program.arguments} {further}".format(seed=run.seed))
        command = [sys.executable, "-c", STARTER, script.name, *arguments]
        began = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment(run, device), timeout=LONGEST, **PIPED)  # noqa: PLW1510
        seconds = time.perf_counter() - began
    found, used = re.findall(program.number, done.stdout), re.findall(USED, done.stdout)
    return {
        "program": program.name,
        "optimizer": run.optimizer,
        "seed": run.seed,
        "number": float(found[-1]) if found and not done.returncode else None,
        "seconds": round(seconds, 1),
        "processor_seconds": round(float(used[-1]), 1) if used else None,
        "error": done.stdout[-1500:] if done.returncode or not found else "",
        "lines": changed_lines(hunks(program, run.optimizer)),
        "data_lines": changed_lines(hunks(program, "data")),
        "versions": versions(),
        **origin(torch.device(device)),
        "command": f"python -m benchmarks.programs --program {program.name} --optimizer {run.optimizer} "
        f"--seed {run.seed} --device {device}",
    }


STARTER = """
import atexit, runpy, sys, time
atexit.register(lambda: print("\\nprocessor seconds:", time.process_time()))
sys.argv[:1], sys.path[0] = [], "."
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script and tells how long the processor has worked for it: a shared machine stretches all other times."""

USED = r"processor seconds: (\S+)"
PIPED: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
    "errors": "replace",
    "check": False,
}


def environment(run: Run, device: str) -> dict[str, str]:
    """The variables of a program's process: one thread, the seed, and no GPU if it is to train on a CPU."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    chosen = {"PYTHONPATH": path, "SEED": str(run.seed), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    return {**os.environ, **chosen, **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})}


def versions() -> dict[str, str]:
    """The packages that optimize and train, as far as they are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def finished(file: Path) -> dict[str, Any] | None:
    """A stored run that has a number."""
    stored = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return stored if stored.get("number") is not None else None


def run_all(runs: Sequence[Run], sources: Path, out: Path, device: str, jobs: int) -> None:
    """Run programs side by side; a run that has a number is kept as it is."""

    def one(run: Run) -> None:
        try:
            stored = started(run, sources, device)
        except subprocess.TimeoutExpired:
            print(f"{run.file}: stopped after {LONGEST} seconds", flush=True)
            return
        write_text(out / run.file, json.dumps(stored, indent=1) + "\n")
        last = (stored["error"].strip().splitlines() or [""])[-1]
        print(f"{run.file}: {stored['number']}, {stored['seconds']} s {last}".rstrip(), flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, (run for run in runs if finished(out / run.file) is None)))


def keep(out: Path, folder: Path) -> None:
    """Write all runs that have a number into one table."""
    rows = [row for file in sorted(out.glob("*~*~*.json")) if (row := finished(file)) is not None]
    if not rows:
        raise SystemExit(f"--keep: there is no finished run in {out}.")
    folder.mkdir(parents=True, exist_ok=True)
    for device in ("cpu", "cuda"):
        some = [row for row in rows if row["device"].startswith("CPU") == (device == "cpu")]
        if some:
            write_text(folder / f"programs-{device}.json", json.dumps({"rows": some}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="where the programs' repositories are")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where runs are kept, a file each")
    parser.add_argument("--program", action="append", choices=list(PROGRAMS), help="only this one; may be repeated")
    parser.add_argument("--seed", action="append", type=int, help="0 unless told; may be repeated")
    parser.add_argument("--optimizer", action="append", choices=OPTIMIZERS, help="only this one; may be repeated")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--take", type=Path, metavar="FOLDER", help="only copy the programs there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="only write the table there")
    options = parser.parse_args()
    chosen = [PROGRAMS[name] for name in options.program or PROGRAMS]
    if options.keep is not None and options.out is not None:
        keep(options.out, options.keep)
        return
    if options.sources is None or (options.out is None and options.take is None):
        parser.error("give --sources, and --out or --take")
    if options.take is not None:
        for program in chosen:
            copied(program, options.sources, options.take / program.source.replace("/", "+"))
        return
    asked_for(parser, options.device)
    torch.set_num_threads(1)  # as the programs have
    order = [
        Run(program, optimizer, seed)
        for seed in options.seed or [0]
        for optimizer in options.optimizer or OPTIMIZERS
        for program in chosen
    ]
    run_all(order, options.sources.resolve(), options.out, options.device, options.jobs)


if __name__ == "__main__":
    main()
