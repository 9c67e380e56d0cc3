"""The report of a benchmark: tables in Markdown, and figures."""

from hotswap.bench.report.write import write_report

__all__ = ["write_report"]
