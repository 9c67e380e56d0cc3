"""Studies from files: what loads, and what a wrong file is told."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hotswap import Backtracking, FirstDecrease
from hotswap.data import DATASETS
from hotswap.errors import SettingError
from hotswap.studies import (
    ALGORITHMS,
    EXAMPLE,
    AdaDeltaFamily,
    AdamFamily,
    ConvolutionalSpec,
    DucbFamily,
    HotSwapFamily,
    NetworkSpec,
    SgdFamily,
    StudySpec,
    VsgdFamily,
    load_study,
)

TOP = 'name = "mine"\nbatch_sizes = [16]\nseeds = [0]\nepochs = 3\n'
SGD = "[sgd]\nlr = [0.1]\nlr_decay = [1]\nmomentum = [0]\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that messages call by its bare name."""
    monkeypatch.chdir(tmp_path)
    return Path("study.toml")


def test_the_example_loads(file: Path) -> None:
    file.write_text(EXAMPLE, encoding="utf-8")
    assert load_study(file) == StudySpec(
        name="digits",
        dataset="digits",
        train_images=1400,
        network=NetworkSpec(hidden=(64, 32)),
        families=(
            SgdFamily(lr=(1.0, 0.3, 0.1), lr_decay=(0.99, 1.0), momentum=(0.0, 0.9)),
            AdaDeltaFamily(),
            DucbFamily(),
            HotSwapFamily(search=FirstDecrease()),
            AdamFamily(lr=(0.01, 0.001)),
            VsgdFamily(),
        ),
        batch_sizes=(32, 64),
        seeds=(0, 1, 2),
        epochs=30,
    )


def test_the_example_shows_every_key_and_choice() -> None:
    tables = dict(re.findall(r"^\[(\w+)\](.*?)(?=^\[|\Z)", EXAMPLE, re.MULTILINE | re.DOTALL))
    assert set(tables) == {"network", *ALGORITHMS}
    for table, kind in {"network": NetworkSpec, **ALGORITHMS}.items():
        assert re.findall(r"^(\w+) =", tables[table], re.MULTILINE) == list(kind.schema())
    top = EXAMPLE.split("[network]")[0]
    given = set(re.findall(r"^(\w+) =", top, re.MULTILINE))
    assert given == {field.name for field in fields(StudySpec)} - {"network", "families", "set_aside"}
    for choice in (*DATASETS, "sigmoid", "tanh", "relu", "glorot", "sparse", "backtracking", "first_decrease"):
        assert f'"{choice}"' in EXAMPLE


def test_the_least_that_a_file_must_say(file: Path) -> None:
    file.write_text(TOP + "[ducb]\n", encoding="utf-8")
    assert load_study(str(file)) == StudySpec(
        name="mine", train_images=None, families=(DucbFamily(),), batch_sizes=(16,), seeds=(0,), epochs=3
    )


def test_whole_numbers_will_do_for_rates(file: Path) -> None:
    file.write_text(TOP + SGD, encoding="utf-8")
    assert load_study(file).runs()[0].id == "sgd-b16-lr0.1-decay1-mom0-s0"


def test_a_byte_order_mark_and_other_line_ends_are_nothing_wrong(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + (TOP + SGD).replace("\n", "\r\n").encode())
    assert load_study(file).name == "mine"


def test_the_order_of_the_tables_does_not_matter(file: Path) -> None:
    file.write_text(TOP + "[ducb]\n[adadelta]\n" + SGD, encoding="utf-8")
    assert load_study(file).algorithms == ("sgd", "adadelta", "ducb")


def test_networks_and_parts_of_hot_swapping_by_name(file: Path) -> None:
    named = '[bold]\nalgorithm = "hotswap"\nreward = "log_reduction"\nsearch = {name = "backtracking", headroom = 2}\n'
    file.write_text(TOP + '[network]\nname = "convolutional"\nchannels = [4]\n' + named + "[ducb]\n", encoding="utf-8")
    study = load_study(file)
    assert study.network == ConvolutionalSpec(channels=(4,))
    assert study.families == (DucbFamily(), HotSwapFamily(name="bold", search=Backtracking(headroom=2)))


WRONG = {
    # Keys and tables
    "unknown key": (
        "epoch = 3\n" + TOP + SGD,
        "has no key 'epoch'; the valid keys are name, dataset, train_images, batch_sizes, seeds, epochs, data_seed "
        "(nearest: epochs).",
    ),
    "nothing like a key": (
        "zzz = 3\n" + TOP + SGD,
        "has no key 'zzz'; the valid keys are name, dataset, train_images, batch_sizes, seeds, epochs, data_seed.",
    ),
    "unknown key in a table": (
        TOP + SGD.replace("momentum", "momentun"),
        "[sgd] has no key 'momentun'; the valid keys are lr, lr_decay, momentum (nearest: momentum).",
    ),
    "unknown algorithm": (
        TOP + "[lion]\nlr = 0.1\n",
        "has no table 'lion'; the valid tables are network, sgd, adadelta, ducb, hotswap, adam, vsgd.",
    ),
    "races": (
        TOP + "[race]\nhigh = 0.1\n",
        "[race]: studies no longer train races; `python -m benchmarks.paper_races` trains races on the paper's "
        "problem.",
    ),
    "races of another name": (
        TOP + '[mine]\nalgorithm = "race"\n',
        "[mine]: studies no longer train races; `python -m benchmarks.paper_races` trains races on the paper's "
        "problem.",
    ),
    "misspelt algorithm": (
        TOP + "[adadleta]\n",
        "has no table 'adadleta'; the valid tables are network, sgd, adadelta, ducb, hotswap, adam, vsgd "
        "(nearest: adadelta).",
    ),
    "no algorithm": (
        TOP + "[network]\n",
        "there is no algorithm; add at least one table of [sgd], [adadelta], [ducb], [hotswap], [adam], [vsgd].",
    ),
    "empty file": (
        "",
        "there is no algorithm; add at least one table of [sgd], [adadelta], [ducb], [hotswap], [adam], [vsgd].",
    ),
    "key below a table": (
        TOP.replace("epochs = 3\n", "") + SGD + "epochs = 3\n",
        "[sgd] epochs belongs to the top of the file, above the first [table].",
    ),
    "a table that is a value": (
        "sgd = true\n" + TOP,
        "sgd is not a table; write its settings once, below the line [sgd].",
    ),
    "an array of tables": (
        TOP + "[" + SGD.replace("[sgd]", "[sgd]]"),
        "sgd is not a table; write its settings once, below the line [sgd].",
    ),
    "a key given a table": (
        TOP.replace("epochs = 3", "epochs.most = 3") + SGD,
        "epochs is {'most': 3}; it must be a whole",
    ),
    "missing key": (TOP.replace("epochs = 3\n", "") + SGD, "epochs is missing, and there is no default."),
    "missing keys": ("seeds = [0]\n" + SGD, "name, batch_sizes, epochs are missing, and there is no default."),
    "missing key in a table": (
        TOP + "[sgd]\nlr = [0.1]\nlr_decay = [1.0]\n",
        "[sgd] momentum is missing, and there is no default.",
    ),
    "unknown algorithm of a named family": (
        TOP + '[mine]\nalgorithm = "lion"\n',
        "[mine] algorithm: there is no algorithm 'lion'; there are sgd, adadelta, ducb, hotswap, adam, vsgd.",
    ),
    "a named family of a wrong setting": (
        TOP + '[mine]\nalgorithm = "hotswap"\ndiscount = 0.9\n',
        "[mine] has no key 'discount'; the valid keys are high, low, count, bandit, search, reward",
    ),
    "unknown network": (
        TOP + '[network]\nname = "resnet"\n' + SGD,
        "[network]: there is no network 'resnet'; there are perceptron, convolutional.",
    ),
    "a bandit's name is no text": (
        TOP + "[hotswap]\nbandit = { name = [1] }\n",
        "[hotswap] bandit is {'name': [1]}; it must be the name of a bandit (discounted_ucb",
    ),
    "unknown bandit": (
        TOP + '[hotswap]\nbandit = "ucb"\n',
        "[hotswap] bandit is 'ucb'; it must be the name of a bandit (discounted_ucb",
    ),
    # Values
    "unknown data set": (
        'dataset = "cifar"\n' + TOP + SGD,
        "dataset is 'cifar'; it must be one of ",
    ),
    "a value for a list": (
        TOP.replace("[16]", "16") + SGD,
        "batch_sizes is 16; it must be a list, each item a whole number of at least 1.",
    ),
    "empty list": (
        TOP + SGD.replace("[0.1]", "[]"),
        "[sgd] lr is empty; it must have at least one item, a positive, finite number.",
    ),
    "an item of a list": (
        TOP + SGD.replace("[0]", "[0.0, 0.5, 1.5]"),
        "[sgd] momentum[2] is 1.5; it must be a number in [0, 1).",
    ),
    "several mistakes of a table": (
        TOP + "[sgd]\nlr = [0.1, -1]\nlr_decay = []\nmomentum = [1, 0.5, true]\n",
        "[sgd] lr[1] is -1; it must be a positive, finite number. Also wrong: lr_decay, momentum[0], momentum[2].",
    ),
    "more mistakes than a sentence names": (
        TOP + "[sgd]\nlr_decay = [1]\nmomentum = [0]\nlr = [" + "-1," * 1000 + "]\n",
        "[sgd] lr[0] is -1; it must be a positive, finite number. Also wrong: lr[1], lr[2], lr[3], lr[4], lr[5] and "
        "994 more.",
    ),
    "a key that is a book": (
        TOP + SGD + "x" * 10_000 + " = 1\n",
        "[sgd] has no key 'xxxxxxxxxxxx...xxxxxxxxxxxxx'; the valid keys are lr, lr_decay, momentum.",
    ),
    "nested too deeply": (
        TOP + SGD + "lr = " + "[" * 100_000,
        "lists or tables in it are nested too deeply; a study nests them twice.",
    ),
    "more digits than a float has": (
        TOP + SGD.replace("0.1", "1" + "0" * 400),
        "[sgd] lr[0] is 100000",
    ),
    "a list without end": (
        TOP.replace("[0]", "[" + "0," * 100_001 + "]") + SGD,
        "seeds has 100001 items; it may have at most 100000.",
    ),
    "twice in a list": (TOP.replace("[16]", "[16, 16]") + SGD, "batch_sizes[1] is 16 again; give each value once."),
    "bounds reversed": (
        TOP + "[ducb]\nhigh = 0.1\nlow = 1\n",
        "[ducb] low is 1.0; it must be smaller than high, which is 0.1.",
    ),
    "minibatch too large": (
        "train_images = 10\n" + TOP + SGD,
        "batch_sizes[0] is 16; it must be at most train_images, which is 10.",
    ),
    # Not TOML at all
    "syntax": (
        TOP + "[sgd\n",
        "this is not TOML: Expected ']' at the end of a table declaration (at line 5, column 5).",
    ),
    "twice": (TOP + "epochs = 4\n", "this is not TOML: Cannot overwrite a value (at line 5, column 11)."),
    "unfinished": (TOP + "data_seed =", "this is not TOML: Invalid value (at line 5, the end of the file)."),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_a_wrong_file_is_told(file: Path, content: str, message: str) -> None:
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        load_study(file)
    said = str(caught.value)
    assert said.startswith(f"study.toml: {message}")
    assert "\n" not in said
    assert said.endswith(".")


def test_files_that_cannot_be_read(file: Path) -> None:
    with pytest.raises(
        SettingError, match=r"^study\.toml: there is no such file; `hotswap study new` writes an example"
    ):
        load_study(file)
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(SettingError, match=r"^study\.toml: byte 8 is not UTF-8 text"):
        load_study(file)
    with file.open("wb") as sparse:
        sparse.truncate(6 * 10**9)  # takes no space on the disk
    with pytest.raises(SettingError, match=r"^study\.toml: the file has 6,000,000,000 bytes; a study has at most"):
        load_study(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(SettingError, match=r"^study\.toml: the file cannot be read"):
        load_study(file)
