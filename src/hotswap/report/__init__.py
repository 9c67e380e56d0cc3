"""From a study's results to what a reader wants to see: figures, tables, claims, a page. No torch, no GPU."""

from hotswap.report.claims import Claim, judge
from hotswap.report.results import Results, load_results
from hotswap.report.write import write_report

__all__ = ["Claim", "Results", "judge", "load_results", "write_report"]
