"""The page: one HTML file with everything in it."""

from hotswap.report.page.render import render_benchmark, render_page

__all__ = ["render_benchmark", "render_page"]
