"""Asking one source after another, and the one gate that every byte passes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from hotswap.data.cache import Cache
from hotswap.data.sources import Fetched, RawFile, Report, Source
from hotswap.errors import DataError

__all__ = ["Obtained", "obtain"]


@dataclass(frozen=True)
class Obtained:
    """Raw files, all of them sound.

    Attributes:
        files: Raw bytes by file name.
        source: The labels of the sources that helped.
    """

    files: dict[str, bytes]
    source: str


def obtain(
    title: str, files: Sequence[RawFile], sources: Sequence[Source], *, cache: Cache, report: Report
) -> Obtained:
    """Get every file from the first source that has it.

    Args:
        title: The data set's name in messages.
        files: What is wanted.
        sources: Whom to ask, in order. `cache` is usually one of them.
        cache: Where a copy is kept of what another source gave.
        report: Is told which source gave how much, and why a source did not.

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
