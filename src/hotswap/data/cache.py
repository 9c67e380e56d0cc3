"""The cache: one folder a data set, filled once and read ever after."""

from __future__ import annotations

import gzip
import os
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotswap.data.sources import Folder, RawFile

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

        The bytes go to a file of another name in the same folder, reach the disk, and only then take the real
        name, which is one indivisible act. Processes that keep the same file at the same time write to
        different names, and whoever is last replaces equal bytes by equal bytes.

        Raises:
            OSError: The folder cannot be written. Nothing is left behind.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._sweep(file)
        part = self.path / f".{file.name}.{secrets.token_hex(8)}.part"
        try:
            with part.open("xb") as stream:
                # With the time left out, equal contents are equal files.
                stream.write(gzip.compress(raw, compresslevel=6, mtime=0))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, self._packed(file))
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise

    def _packed(self, file: RawFile) -> Path:
        return self.path / f"{file.name}.gz"

    def _sweep(self, file: RawFile) -> None:
        """Remove what a killed process left behind: parts too old to be still written by anyone."""
        for part in self.path.glob(f".{file.name}.*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _HOUR:
                    part.unlink()
