"""Asking one source after another, and the one gate that every byte passes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hotswap.data.cache import Cache, cache_folder
from hotswap.data.sources import Fetched, Folder, RawFile, Report, Source
from hotswap.errors import DataError, SettingError

__all__ = ["ListSources", "Obtained", "nearby", "obtain", "obtain_by_name"]


@dataclass(frozen=True)
class Obtained:
    """Raw files, all of them sound.

    Attributes:
        files: Raw bytes by file name.
        source: The labels of the sources that helped.
    """

    files: dict[str, bytes]
    source: str


class ListSources(Protocol):
    """Returns every source of a data set in the order to be asked."""

    def __call__(self, cache: Cache, *, folder: Path | None) -> Sequence[Source]:
        """`folder` is the one that the user names, if any."""


def obtain_by_name(
    name: str,
    title: str,
    files: Sequence[RawFile],
    list_sources: ListSources,
    folder: str | os.PathLike[str] | None,
    report: Report | None,
) -> Obtained:
    """Get every file of the data set `name`, whose cache is the subfolder of that name: what loaders have in common.

    Raises:
        SettingError: `folder` is not a folder.
        DataError: See `obtain`.
    """
    if folder is not None and not Path(folder).is_dir():
        raise SettingError(f"load_{name}(folder={os.fspath(folder)!r}): folder must be a folder that exists.")
    cache = Cache(cache_folder() / name)
    sources = list_sources(cache, folder=None if folder is None else Path(folder))
    return obtain(title, files, sources, cache=cache, report=report or _silent)


def nearby(cache: Cache, folder: Path | None) -> list[Source]:
    """Return the sources that every data set has, and that are asked first: the folder the user names, the cache."""
    return [cache] if folder is None else [Folder(folder), cache]


def _silent(line: str) -> None:
    """Report to nobody."""


def obtain(
    title: str, files: Sequence[RawFile], sources: Sequence[Source], *, cache: Cache, report: Report
) -> Obtained:
    """Get every file from the first source that has it.

    Args:
        title: The data set's name in messages.
        files: What is wanted.
        sources: Whom to ask, in order. `cache` is usually one of them.
        cache: Where a copy is kept of what another source gave.
        report: Is told which source gave how much, why a source did not, and of a long transfer before it begins.

    Raises:
        DataError: Some file is not to be had anywhere. The message lists each source and its reason.
    """
    found: dict[str, bytes] = {}
    helped: list[str] = []
    failures: list[str] = []
    for place, source in enumerate(sources):
        missing = [file for file in files if file.name not in found]
        if not missing:
            break
        # Once the cache has been asked, what it did not give it lacks or has damaged: write it anew.
        renew = cache in sources[:place]
        gained = 0
        if source.announcement:
            report(f"{title}: {source.announcement}.")
        try:
            for file, raw in _checked(source, missing):
                found[file.name] = raw
                gained += 1
                if source is not cache and (renew or not cache.holds(file)):
                    _keep(cache, file, raw, report)
        except (DataError, OSError) as error:
            failures.append(f"{source}: {error}")
            report(f"{title}: {failures[-1]}.")
        if gained:
            helped.append(source.label)
            report(f"{title}: {gained} of {len(files)} files from {source}.")
    if len(found) < len(files):
        raise DataError(_nowhere(title, files, failures, cache))
    return Obtained(found, " and ".join(helped))


def _checked(source: Source, files: Sequence[RawFile]) -> Fetched:
    """Yield what the source yields, as long as it is what it should be."""
    with closing(source.fetch(files)) as offers:
        for file, raw in offers:
            file.check(raw)
            yield file, raw


def _keep(cache: Cache, file: RawFile, raw: bytes, report: Report) -> None:
    try:
        cache.keep(file, raw)
    except OSError as error:
        # The bytes are good all the same; only the next time will be slower.
        report(f"No copy of {file.name} was kept in {cache.path} ({error.strerror or error}).")


def _nowhere(title: str, files: Sequence[RawFile], failures: Sequence[str], cache: Cache) -> str:
    reasons = "\n".join(f"  - {failure}" for failure in failures)
    names = ", ".join(file.name for file in files)
    return (
        f"{title} is not to be had from any source:\n{reasons}\n"
        f"Put the files {names} (each as it is or with .gz) in a folder and name it with --from FOLDER, "
        f"or set HOTSWAP_DATA to a folder that holds them in a subfolder {cache.path.name}."
    )
