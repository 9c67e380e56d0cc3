"""Which packages each part of hotswap needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    """The packages of requirements, with those that an extra of hotswap stands for."""
    found: set[str] = set()
    for requirement in requirements:
        if extras := re.match(r"hotswap\[(.*)\]", requirement):
            for extra in extras[1].split(","):
                found |= names(PROJECT["optional-dependencies"][extra])
        else:
            found.add(re.match(r"[\w.-]+", requirement)[0])  # type: ignore[index]
    return found


def run(code: str, without: set[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program where packages cannot be imported, as far as torch does without them itself."""
    modules = {{"pillow": "PIL", "scikit-learn": "sklearn"}.get(name, name) for name in without}
    block = f"import sys; sys.modules.update(dict.fromkeys({sorted(modules)!r}))"
    return subprocess.run(
        [sys.executable, "-c", f"{block}\n{code}", *words], capture_output=True, text=True, check=False
    )


TRAIN = """
import torch, hotswap, hotswap.data, hotswap.networks, hotswap.presets, hotswap.testing
for name in hotswap.__all__:
    getattr(hotswap, name)
model = torch.nn.Linear(2, 1)
x = torch.randn(8, 2)
race = hotswap.Race(model, total_steps=3)
for _ in range(3):
    loss = model(x).square().mean()
    loss.backward()
    race.step(loss)
    race.zero_grad()
hotswap.HotSwapSGD(model).step(lambda: model(x).square().mean())
"""


def test_optimizers_need_torch_and_numpy_alone() -> None:
    assert names(PROJECT["dependencies"]) == {"torch", "numpy"}
    everything = names(["hotswap[cli,study,bench,cluster]"]) - {"filelock"}  # torch itself needs that one
    done = run(TRAIN, everything)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["typer", "rich", "pydantic"])
def test_the_command_line_says_what_to_install(package: str) -> None:
    assert package in names(["hotswap[cli]"])
    done = run("from hotswap.__main__ import main; main()", {package}, "--version")
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: The command line needs {package}, which is not installed; install hotswap with its extra, as in "
        "pip install 'hotswap[cli]', or from a checkout pip install '.[cli]'.\n"
    )


@pytest.mark.parametrize(
    ("words", "package"),
    [
        *(("bench list", package) for package in ("pandas", "pyarrow", "matplotlib", "safetensors")),
        *(("report", package) for package in ("pandas", "pyarrow", "matplotlib")),
        ("demo", "matplotlib"),
    ],
)
def test_a_command_without_a_package_of_its_extra_prints_one_sentence(words: str, package: str) -> None:
    assert package in names(["hotswap[study]"])
    done = run("from hotswap.__main__ import main; main()", {package}, *words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{package} is not installed; install hotswap with its extra, as in pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_studies_say_what_to_install() -> None:
    done = run("import hotswap.studies", {"pydantic"})
    assert "ModuleNotFoundError: Studies need pydantic, which is not installed; install hotswap with" in done.stderr


def test_the_command_line_needs_its_extra_alone_and_answers_before_torch_is_loaded() -> None:
    others = names(["hotswap[study,bench,cluster]"]) - names(["hotswap[cli]"])
    done = run("from hotswap.__main__ import main; main()", {"torch", *others}, "--help")
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


def test_every_extra_with_commands_has_the_command_line() -> None:
    for extra in ("study", "bench", "cluster", "dev"):
        assert names(["hotswap[cli]"]) <= names([f"hotswap[{extra}]"])
