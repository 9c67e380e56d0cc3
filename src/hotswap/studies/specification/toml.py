"""A user's own study, from a TOML file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from hotswap.errors import SettingError
from hotswap.studies.specification.families import (
    ALGORITHMS,
    FAMILIES,
    AdaDeltaFamily,
    DucbFamily,
    NetworkSpec,
    SgdFamily,
)
from hotswap.studies.specification.settings import FieldError, build, unknown
from hotswap.studies.specification.study import StudySpec

__all__ = ["EXAMPLE", "load_study"]

EXAMPLE = """\
# A study: every algorithm below, with every batch size, from every seed.

name = "digits"
dataset = "digits"        # "digits" (1,797 small images, part of scikit-learn) or "mnist" (fetched once)
train_images = 1_400      # the first so many training images; leave it out for all of them
batch_sizes = [32, 64]    # minibatches are always full: what is left over at an epoch's end waits for the next shuffle
seeds = [0, 1, 2]         # one weight initialisation each
epochs = 30
data_seed = 0             # the order of the data, the same for every run

[network]
hidden = [64, 32]         # sizes of the hidden layers
unit = "sigmoid"          # "sigmoid", "tanh" or "relu"
init = "glorot"           # "glorot", or "sparse" for a few Gaussian weights a unit

# A table for each algorithm that is to run; delete those that are not.

[sgd]                     # every combination of these three lists
lr = [1.0, 0.3, 0.1]
lr_decay = [0.99, 1.0]    # the rate is multiplied with this after each epoch
momentum = [0.0, 0.9]

[adadelta]                # one setting; the values here are the defaults
rho = 0.95
eps = 1e-6
lr = 1.0

[ducb]                    # hot swapping with a discounted UCB bandit; the values here are the defaults
high = 1e2                # the largest rate
low = 1e-6                # the smallest rate
count = 33                # how many rates, evenly spaced on a logarithmic scale
discount = 0.99           # how much of what the bandit knows is kept at each step
exploration = 1e-8        # the weight of its confidence widths
search = "backtracking"   # "backtracking" or "first_decrease"
headroom = 0              # how many rates above the proposed one the search begins
"""
"""A commented study, small enough for a laptop, with every key there is."""

KEYS = ("name", "dataset", "train_images", "batch_sizes", "seeds", "epochs", "data_seed")
TABLES: dict[str, type[NetworkSpec | SgdFamily | AdaDeltaFamily | DucbFamily]] = {"network": NetworkSpec, **FAMILIES}


def load_study(path: str | os.PathLike[str]) -> StudySpec:
    """Read a study from a file such as `EXAMPLE`.

    The keys at the top are those of `StudySpec`, and `[network]`, `[sgd]`, `[adadelta]` and `[ducb]` those of
    their classes; the tables that are there say which algorithms run. Left out, `train_images` means all of them.

    Raises:
        SettingError: The file is wrong; one sentence says where, and what it could be instead.
    """
    file = os.fspath(path)
    settings: dict[str, Any] = {"train_images": None}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in _document(file).items():
        if key in TABLES:
            tables[key] = _table(key, value, file)
        elif key in KEYS:
            settings[key] = value
        elif isinstance(value, dict):
            raise SettingError(f"{file}: {unknown('table', key, tuple(TABLES))}")
        else:
            raise SettingError(f"{file}: {unknown('key', key, KEYS)}")
    families = [build(FAMILIES[name], tables[name], f"{file}: [{name}]") for name in ALGORITHMS if name in tables]
    network = build(NetworkSpec, tables.get("network", {}), f"{file}: [network]")
    if not families:
        raise SettingError(f"{file}: there is no algorithm; add at least one table of {_headings(ALGORITHMS)}.")
    return build(StudySpec, {**settings, "network": network, "families": families}, f"{file}:")


def _document(file: str) -> dict[str, Any]:
    try:
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


def _table(name: str, value: object, file: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"{file}: {name} is not a table; write its settings once, below the line [{name}].")
    known = TABLES[name].__dataclass_fields__
    for key in value:
        if key in KEYS and key not in known:
            # In TOML a key belongs to the last table above it, which is easily forgotten.
            raise FieldError(f"{file}: [{name}]", key, "belongs to the top of the file, above the first [table].")
    return value


def _headings(names: tuple[str, ...]) -> str:
    return ", ".join(f"[{name}]" for name in names)
