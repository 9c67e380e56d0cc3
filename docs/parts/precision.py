"""Whether what came out hangs on TF32, as Markdown: the runs that were trained in full precision too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pandas as pd
from measured import ALGORITHMS, ROOT, claims, last, name_of, results, table

from hotswap.report.claims import judge
from hotswap.report.origin import origin_of
from hotswap.report.results import Results, load_results
from hotswap.report.summaries import at_epoch


@cache
def parts() -> list[Results]:
    """What was trained in full precision."""
    return [
        load_results(path) for path in sorted((ROOT / "results" / "fp32").glob("*.parquet")) if "." not in path.stem
    ]


def verdicts() -> str:
    """The claims judged again, with those runs in place of the others."""
    mixed = results()
    for part in parts():
        mixed = mixed.with_runs_of(part)
    again = judge(mixed)
    same = sum(ours.verdict == theirs.verdict for ours, theirs in zip(claims(), again, strict=True))
    runs = sum(part.metrics["run"].nunique() for part in parts())
    return f"With {runs} runs in FP32 in place of the same runs in TF32, {same} of {len(again)} verdicts are the same."


def side_by_side() -> str:
    """Medians at the end, of the same runs in both."""
    rows = []
    full = pd.concat([at_epoch(part.metrics, part.last_epoch) for part in parts()])
    both = full.merge(last(), on=["run", "algorithm", "batch_size"], suffixes=("", "_tf32"))
    for name in ALGORITHMS:
        for size, group in both[both["algorithm"] == name].groupby("batch_size"):
            nll, error = (
                group[["train_nll", "train_nll_tf32"]].median(),
                group[["test_error", "test_error_tf32"]].median(),
            )
            rows.append(
                (
                    name_of(name),
                    str(size),
                    str(len(group)),
                    *(f"{v:.2e}" for v in nll),
                    *(f"{v:.2%}" for v in error),
                )
            )
    headings = (
        "algorithm", "batch", "runs", "objective, FP32", "TF32", "test error, FP32", "TF32",
    )  # fmt: skip
    return f"{table(headings, rows, left=1)}\n\n{source()}"


def source() -> str:
    """What trained them."""
    lines = []
    for part in parts():
        origin = origin_of(part)
        lines.append(f"{origin.sentence()} {', '.join(f'`{command}`' for command in origin.commands)}")
    return f"*Medians at the end. {'; '.join(lines)}.*"


BLOCKS: dict[str, Callable[[], str]] = {"full precision": side_by_side, "full precision verdicts": verdicts}
