"""Files of one's own that add to what can be chosen by name: `hotswap --load FILE`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hotswap.errors import SettingError

__all__ = ["LOADED", "load_file", "load_texts", "loaded_texts"]

LOADED: list[Path] = []
"""The files that this process has loaded."""


def load_file(path: Path) -> None:
    """Run a Python file, which registers what it defines: algorithms, data sets, bandits, workloads and so on.

    Raises:
        SettingError: There is no such file, or it fails; the sentence says where.
    """
    spec = spec_from_file_location(f"hotswap_extension_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SettingError(f"There is no Python file {path} to load; name a file that ends in .py.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        traceback, line = error.__traceback__, None
        while traceback is not None:
            if Path(traceback.tb_frame.f_code.co_filename).resolve() == path.resolve():
                line = traceback.tb_lineno
            traceback = traceback.tb_next
        place = f"{path}, line {line}" if line else str(path)
        raise SettingError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    LOADED.append(path)


def loaded_texts() -> tuple[tuple[str, str], ...]:
    """The files that this process has loaded, by name and text: workers of a cluster must load them, too."""
    return tuple((path.name, path.read_text(encoding="utf-8")) for path in LOADED)


def load_texts(files: Iterable[tuple[str, str]]) -> None:
    """Load what `loaded_texts` gave in another process, on another machine perhaps."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            load_file(path)
