"""The report of a benchmark: tables in Markdown, figures, and a page or a section of one."""

from hotswap.bench.report.section import section_data
from hotswap.bench.report.write import write_report

__all__ = ["section_data", "write_report"]
