"""`hotswap report`: figures, tables, claims and a page from a study's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotswap.cli.console import need, out, plain, show, warn
from hotswap.errors import StudyError

if TYPE_CHECKING:
    from hotswap.report import Claim, Results

COLOURS = {"reproduced": "green", "partly reproduced": "yellow", "not reproduced": "red"}


def report(
    study: Annotated[
        Path | None,
        typer.Argument(
            help="A study's folder, or a table or folder exported from one; without it, the paper's study as it comes "
            "with hotswap.",
            metavar="STUDY",
        ),
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the report goes.", metavar="DIR")] = Path("report"),
) -> None:
    """Write figures, tables, a verdict on each claim, and a page to look at. No GPU.

    Figures 1 and 2 and two of our own (PNG and SVG), Tables 1 and 2 (Markdown and LaTeX), claims.md, and index.html,
    one file that works offline. Of a study that is not finished, what there is. A study of variants of hot swapping has
    beyond-the-paper.md and figures that compare them at equal cost. Without STUDY, the page has the benchmark against
    other methods as well, where that comes with hotswap.
    """
    need("pandas", "Reports read tables")
    need("pyarrow", "Reports read tables")
    need("matplotlib", "Reports draw figures")
    from hotswap.report import judge, load_results, write_report
    from hotswap.report.claims import worth_showing

    with out.status("Reading ...") as status:
        results = load_results(study)
        benchmark = _benchmark() if study is None else None
        written = write_report(results, out_dir, lambda name: status.update(f"Wrote {name} ..."), benchmark)
    if worth_showing(results):
        _print_claims(results, judge(results))
    warn(f"Missing: {sentence}" for sentence in results.missing)
    names = {path.name for path in written}
    told = {"claims.md": "numbers and rules", "beyond-the-paper.md": "variants at equal cost"}
    further = "".join(f"; {what}: {name}" for name, what in told.items() if name in names)
    out.print(f"Wrote {len(written)} files. Open [bold]{plain(str(out_dir / 'index.html'))}[/]{further}.")


def _benchmark() -> Mapping[str, Any] | None:
    """The section on other methods, where its results come with hotswap. A report is not worth failing for it."""
    from hotswap.store.shipped import BENCHMARK, shipped

    try:
        folder = shipped(*BENCHMARK)
    except StudyError:
        return None
    try:
        from hotswap.bench.exchange import read_results
        from hotswap.bench.report import section_data

        return section_data({result.run.id: result for result in read_results(folder)})
    except StudyError as error:
        warn([f"Missing: the section on the benchmark cannot be made ({str(error).rstrip('.')})."])
    return None


def _print_claims(results: Results, claims: Sequence[Claim]) -> None:
    """The verdicts as a table."""
    rows = []
    for claim in claims:
        verdict = f"[{COLOURS[claim.verdict]}]{claim.verdict}[/]" if claim.verdict else "no data"
        rows.append((str(claim.number), claim.claim, verdict))
    title = f"The paper's claims, judged by the study {plain(results.name)}"
    headings = ("#", "claim", "verdict")
    show(title, headings, rows, words=headings, narrow=("claim",))
    warn([results.caution] if results.caution else [])
