"""The origin of a result: the versions and the device, the date, and the command as others may read it."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from hotswap._version import __version__

if TYPE_CHECKING:
    import torch

__all__ = ["occasion", "versions", "without_folders"]


def versions(device: torch.device) -> dict[str, str]:
    """The versions and the device that a result may depend on."""
    import torch  # noqa: PLC0415  # a reader of results needs none

    return {
        "hotswap": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
    }


def occasion() -> dict[str, str]:
    """The command of this process, and the time."""
    return {
        "command": without_folders(shlex.join(["hotswap", *sys.argv[1:]])),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def without_folders(command: str) -> str:
    """`hotswap study run ../mine.toml --out /home/me/x` becomes `hotswap study run mine.toml --out x`.

    A command goes out with every export, and the folders of a disk are nobody's business.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that do not match, in a file from elsewhere
        return command
    return shlex.join(map(_last_part, words))


def _last_part(word: str) -> str:
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{PurePath(value).name or value}"
