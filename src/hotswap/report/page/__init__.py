"""The page: one HTML file with everything in it."""

from hotswap.report.page.build import build_page

__all__ = ["build_page"]
