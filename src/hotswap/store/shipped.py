"""The folders of the results that come with the package."""

from __future__ import annotations

from pathlib import Path

from hotswap.errors import StudyError

__all__ = ["BENCHMARK", "shipped"]

BENCHMARK = ("tuning_free", "runs.parquet")
"""The benchmark's results, and the file by which they are known."""


def shipped(name: str = "paper", file: str = "provenance.json") -> Path:
    """The folder of results that has this file: inside an installed package, or in the repository it runs from.

    Raises:
        StudyError: There are none.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "results" / name, package.parents[1] / "results" / name):
        if (folder / file).is_file():
            return folder
    raise StudyError(f"The results {name!r} did not come with this installation; name a study's folder.")
