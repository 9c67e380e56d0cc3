"""Where the checkpoints of a unit lie, and how far they go: for those who read a study without loading torch.

DIR/checkpoints/UNIT-DIGEST/epoch-000010.safetensors    the weights of the unit's runs after ten epochs
DIR/checkpoints/UNIT-DIGEST/epoch-000010.sha256         its checksum, written last
DIR/checkpoints/UNIT-DIGEST/epoch-000010.stored         where else it lies, if a worker of a cluster wrote it elsewhere
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["checkpoint_folder", "latest_checkpoint"]

_STORED = re.compile(r"epoch-(\d+)\.stored")
_CHECKSUM = re.compile(r"epoch-(\d+)(?:-kept)?\.sha256")


def checkpoint_folder(study: Path, unit: str, runs: Iterable[str]) -> Path:
    """Where a unit's checkpoints lie: apart from those of a unit of the same name with other runs in it."""
    digest = hashlib.sha256("\n".join(sorted(runs)).encode()).hexdigest()
    return study / "checkpoints" / f"{unit}-{digest[:8]}"


def latest_checkpoint(folder: Path) -> int:
    """The epoch of the latest checkpoint that was written to its end; 0 if there is none."""
    paths = list(folder.glob("epoch-*"))
    sums = ((_CHECKSUM.fullmatch(path.name), path.with_suffix(".safetensors")) for path in paths)
    here = [int(name[1]) for name, weights in sums if name and weights.is_file()]
    elsewhere = [int(name[1]) for name in (_STORED.fullmatch(path.name) for path in paths) if name]
    return max(here + elsewhere, default=0)
