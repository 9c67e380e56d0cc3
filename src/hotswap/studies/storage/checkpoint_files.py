"""Where the checkpoints of a unit lie, and how far they go: for those who read a study without loading torch.

DIR/checkpoints/UNIT-DIGEST/epoch-000010.safetensors    the weights of the unit's runs after ten epochs
DIR/checkpoints/UNIT-DIGEST/epoch-000010.sha256         its checksum, written last
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["checkpoint_folder", "latest_checkpoint"]

_CHECKSUM = re.compile(r"epoch-(\d+)(?:-kept)?\.sha256")


def checkpoint_folder(study: Path, unit: str, runs: Iterable[str]) -> Path:
    """Where a unit's checkpoints lie: apart from those of a unit of the same name with other runs in it."""
    digest = hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()
    return study / "checkpoints" / f"{unit}-{digest[:8]}"


def latest_checkpoint(folder: Path) -> int:
    """The epoch of the latest checkpoint that was written to its end; 0 if there is none."""
    found = ((_CHECKSUM.fullmatch(path.name), path.with_suffix(".safetensors")) for path in folder.glob("epoch-*"))
    return max((int(name[1]) for name, weights in found if name and weights.is_file()), default=0)
