"""Where the results that come with the package lie."""

from __future__ import annotations

from pathlib import Path

from hotswap.errors import StudyError

__all__ = ["shipped"]


def shipped(name: str = "paper") -> Path:
    """The folder of a study's results: inside an installed package, or in the repository it runs from.

    Raises:
        StudyError: There are none.
    """
    package = Path(__file__).parents[2]
    for folder in (package / "results" / name, package.parents[1] / "results" / name):
        if (folder / "provenance.json").is_file():
            return folder
    raise StudyError(f"The results of the study {name!r} did not come with this installation; name a study's folder.")
