"""Studies as folders and files hold them, read where what they name may not be registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hotswap.errors import HotSwapError, StudyError
from hotswap.studies.specification.study import StudySpec

__all__ = ["stored_study"]


def stored_study(table: Any, place: Path) -> StudySpec:
    """The study that `StudySpec.to_dict` wrote into a folder or a file, which is the `place`.

    Raises:
        StudyError: It is damaged, or it names an algorithm, a network or the like that is not registered here.
    """
    try:
        return StudySpec.from_dict(table)
    except (HotSwapError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise StudyError(
            f"{place} cannot be read ({why}); if its study uses something of your own, load the file that registers "
            "it: `hotswap --load FILE`, followed by the command."
        ) from error
