"""The runs that were trained in full precision too, beside the same runs in TF32."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from measured import ALGORITHMS, FORMS, ROOT, claims, last, results, table

from hotswap.report.claims import judge
from hotswap.report.origin import origin_of
from hotswap.report.results import Results
from hotswap.report.summaries import at_epoch


def parts() -> dict[str, Results]:
    """The studies that were trained in full precision."""
    paths = sorted((ROOT / "results" / "fp32").glob("*.parquet"))
    return {path.stem: results(f"fp32/{path.name}") for path in paths if "." not in path.stem}


def verdicts() -> str:
    """The claims judged again, with those runs in place of the others."""
    mixed = results()
    for part in parts().values():
        mixed = mixed.with_runs_of(part)
    same = sum(ours.verdict == theirs.verdict for ours, theirs in zip(claims(), judge(mixed), strict=True))
    runs = sum(part.metrics["run"].nunique() for part in parts().values())
    return (
        f"With {runs} runs in FP32 in place of the same runs in TF32, {same} of {len(claims())} verdicts are the same."
    )


def side_by_side() -> str:
    """Medians at the end, of the same runs in both."""
    full, rows = pd.concat([at_epoch(part.metrics, part.last_epoch) for part in parts().values()]), []
    both = full.merge(last(), on=["run", "algorithm", "batch_size"], suffixes=("", "_tf32"))
    for name in ALGORITHMS:
        for size, group in both[both["algorithm"] == name].groupby("batch_size"):
            columns = [("train_nll", "{:.2e}".format), ("test_error", FORMS["test_error"])]
            cells = [text(group[column + end].median()) for column, text in columns for end in ("", "_tf32")]
            rows.append((results().looks.label_of(name), str(size), str(len(group)), *cells))
    headings = ("algorithm", "batch", "runs", "objective, FP32", "TF32", "test error, FP32", "TF32")
    made = (
        f"*Source: `results/fp32/{name}`. {origin_of(part).sentence()}* "
        f"{', '.join(f'`{command}`' for command in origin_of(part).commands)}"
        for name, part in parts().items()
    )
    return "\n\n".join([table(headings, rows), *made])


BLOCKS: dict[str, Callable[[], str]] = {"full precision": side_by_side, "full precision verdicts": verdicts}
