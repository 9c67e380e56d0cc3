"""The cache: one folder a data set, filled once and read ever after."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotswap.data.sources import Folder, RawFile
from hotswap.files import replacing

__all__ = ["Cache", "cache_folder"]

_HOUR = 3600.0


def cache_folder(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return the folder that holds every data set's cache: `$HOTSWAP_DATA`, or else the platform's own place.

    Args:
        environment: Variables to look in; the process's own if not given.
        platform: As in `sys.platform`.
    """
    variables = os.environ if environment is None else environment
    chosen = variables.get("HOTSWAP_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if platform == "win32":
        local = variables.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hotswap"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hotswap"
    # The XDG specification says that a relative path there is to be ignored.
    shared = variables.get("XDG_CACHE_HOME", "")
    return (Path(shared) if shared.startswith("/") else Path.home() / ".cache") / "hotswap"


@dataclass(frozen=True)
class Cache(Folder):
    """A folder that we also write, whole files only: a reader sees the old one or the new one, never half."""

    title: str = "cache"

    def holds(self, file: RawFile) -> bool:
        """Say whether there is a copy, sound or not."""
        return self._packed(file).is_file()

    def keep(self, file: RawFile, raw: bytes) -> None:
        """Write a copy, replacing any that is there.

        Processes that keep the same file at the same time write to different temporary files, and whoever is last
        replaces equal bytes by equal bytes.

        Raises:
            OSError: The folder cannot be written. Nothing is left behind.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._sweep(file)
        with replacing(self._packed(file)) as part:
            part.write_bytes(gzip.compress(raw, compresslevel=6, mtime=0))  # without the time, equal contents are equal

    def _packed(self, file: RawFile) -> Path:
        return self.path / f"{file.name}.gz"

    def _sweep(self, file: RawFile) -> None:
        """Remove what a killed process left behind: parts too old to be still written by anyone."""
        for part in self.path.glob(f".{file.name}.gz.*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _HOUR:
                    part.unlink()
