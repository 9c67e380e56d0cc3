"""A user's own study, from a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from hotswap.data import DATASETS
from hotswap.errors import SettingError
from hotswap.names import RULE, is_name
from hotswap.registry import LOAD_HINT
from hotswap.studies.algorithms import ALGORITHMS, Family
from hotswap.studies.algorithms.base import refuse_races
from hotswap.studies.networks import NETWORKS, NetworkSpec, network_from_dict
from hotswap.studies.settings import FieldError, Settings, build, unknown
from hotswap.studies.study import StudySpec

__all__ = ["EXAMPLE", "example", "load_study"]

TABLES = ("network", "families", "set_aside")
"""The fields of `StudySpec` that a file writes as tables, or not at all."""

MOST_BYTES = 10**7
"""The most bytes of a file. It is checked before the file is read."""

KEYS = tuple(name for name in StudySpec.schema() if name not in TABLES)


def load_study(path: str | os.PathLike[str]) -> StudySpec:
    """Read a study from a file such as `EXAMPLE`.

    The keys at the top are those of `StudySpec`; `[network]` has those of the network that its `name` names, a
    perceptron where it names none; every other table is an algorithm's, and those that are there say which algorithms
    run. A table with a name of its own says which algorithm it is: `[cautious]`, then `algorithm = "hotswap"`. Left
    out, `train_images` means all of them.

    Raises:
        SettingError: The file is wrong; one sentence says where, and what it could be instead.
    """
    file = os.fspath(path)
    settings: dict[str, Any] = {"train_images": None}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in _document(file).items():
        if not is_name(key):
            raise SettingError(f"{file}: {shortened(key)} cannot be the name of a key or a table; a name has {RULE}.")
        if isinstance(value, dict):
            refuse_races(value.get("algorithm", key), f"{file}: [{key}]")
        if key == "network" or _is_family(key, value):
            tables[key] = _table(key, value, file)
        elif key in KEYS:
            settings[key] = value
        elif isinstance(value, dict):
            raise SettingError(f"{file}: {unknown('table', key, ('network', *ALGORITHMS))} {LOAD_HINT}")
        else:
            raise SettingError(f"{file}: {unknown('key', key, KEYS)}")
    network = network_from_dict(tables.pop("network", {}), f"{file}: [network]")
    known = [name for name in ALGORITHMS if name in tables]
    families = [_family(name, tables[name], file) for name in (*known, *(name for name in tables if name not in known))]
    if not families:
        raise SettingError(f"{file}: there is no algorithm; add at least one table of {_headings(tuple(ALGORITHMS))}.")
    return build(StudySpec, {**settings, "network": network, "families": families}, f"{file}:")


def _document(file: str) -> dict[str, Any]:
    try:
        if (size := Path(file).stat().st_size) > MOST_BYTES:
            raise SettingError(f"{file}: the file has {size:,} bytes; a study has at most {MOST_BYTES:,}.")
        text = Path(file).read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except FileNotFoundError:
        raise SettingError(f"{file}: there is no such file; `hotswap study new` writes an example.") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{file}: byte {error.start} is not UTF-8 text, which TOML must be.") from None
    except OSError as error:
        raise SettingError(f"{file}: the file cannot be read ({error.strerror}).") from None
    try:
        return tomllib.loads(text)
    except ValueError as error:
        last = f"at line {len(text.splitlines())}, the end of the file"
        reason = str(error).replace("at end of document", last)
        raise SettingError(f"{file}: this is not TOML: {reason}.") from None
    except RecursionError:
        raise SettingError(f"{file}: lists or tables in it are nested too deeply; a study nests them twice.") from None


def _is_family(key: str, value: object) -> bool:
    return key in ALGORITHMS or (isinstance(value, dict) and "algorithm" in value)


def _table(name: str, value: object, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"{file}: {name} is not a table; write its settings once, below the line [{name}].")
    known = ("name",) if name == "network" else _kind(name, value, file).schema()
    for key in value:
        if key in KEYS and key not in known:
            # In TOML a key belongs to the last table above it, which is easily forgotten.
            raise FieldError(f"{file}: [{name}]", key, "belongs to the top of the file, above the first [table].")
    return value


def _kind(name: str, table: Mapping[str, Any], file: str) -> type[Family]:
    return ALGORITHMS.find(table.get("algorithm", name), f"{file}: [{name}] algorithm")


def _family(name: str, table: Mapping[str, Any], file: str) -> Family:
    kind = _kind(name, table, file)
    settings = {key: value for key, value in table.items() if key != "algorithm"}
    unusual = [key for key in settings if key not in kind.schema()]
    if unusual:
        raise SettingError(f"{file}: [{name}] {unknown('key', unusual[0], tuple(kind.schema()))}")
    return build(kind, settings if name == kind.algorithm else {**settings, "name": name}, f"{file}: [{name}]")


def _headings(names: tuple[str, ...]) -> str:
    return ", ".join(f"[{name}]" for name in names)


# The example.

_TOP = """\
# A study: every algorithm below, with every batch size, from every seed.

"""
_NETWORK = """
[network]                 # a perceptron, unless its name is another: {networks}
"""
_ALGORITHMS = """
# A table for each algorithm that is to run; delete those that are not. Settings that are lists give a run for every
# combination; the others have the defaults here, unless it says otherwise. A second table of an algorithm has a name of
# its own, and says which algorithm it is: [cautious], then algorithm = "hotswap".
"""


def example() -> str:
    """A commented study, small enough for a laptop, with every key of every algorithm that there is."""
    networks = ", ".join(f'name = "{name}"' for name in NETWORKS if name != NetworkSpec.network)
    top = _TOP + _settings(StudySpec).replace("{datasets}", ", ".join(f'"{name}"' for name in DATASETS))
    text = top + _NETWORK.format(networks=networks) + _settings(NetworkSpec) + _ALGORITHMS
    for name, kind in ALGORITHMS.items():
        text += f"\n{f'[{name}]':<25} # {(kind.__doc__ or kind.label).partition(chr(10))[0]}\n{_settings(kind)}"
    return text


def _settings(kind: type[Settings]) -> str:
    """A line for each setting: its name, a value, what it means."""
    lines = []
    for name, setting in kind.schema().items():
        if name in TABLES:
            continue
        value = setting.default if setting.example is None else setting.example
        if value is MISSING:
            raise SettingError(f"{kind.__name__}: {name} has neither a default nor an example.")
        stored = value if setting.rule.write is None else setting.rule.write(value)
        lines.append(f"{f'{name} = {_toml(stored)}':<25} # {setting.help}\n")
    return "".join(lines)


def _toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        if set(value) == {"name"}:
            return _toml(value["name"])
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return repr(value)


EXAMPLE = example()
"""A commented study, small enough for a laptop, with every key of the algorithms that come with hotswap."""
