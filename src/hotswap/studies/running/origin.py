"""What trained something: versions and device, and the command that was given."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime

import torch

from hotswap._version import __version__

__all__ = ["occasion", "versions"]


def versions(device: torch.device) -> dict[str, str]:
    """What a result may depend on."""
    return {
        "hotswap": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
    }


def occasion() -> dict[str, str]:
    """The command of this process, and the time."""
    return {
        "command": shlex.join(["hotswap", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
