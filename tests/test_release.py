"""What a release consists of: a wheel and a source archive, each installed into an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from hotswap import __version__

ROOT = Path(__file__).parents[1]
FOUND = """
import importlib.metadata
from pathlib import Path
import hotswap
from hotswap.report import load_results
from hotswap.store.shipped import BENCHMARK, shipped

package = Path(hotswap.__file__).parent
for folder in (shipped(), shipped(*BENCHMARK)):
    assert package in folder.parents, folder
assert (package / "py.typed").is_file()
assert len(load_results().metrics)
for name in hotswap.__all__:
    getattr(hotswap, name)
print(package, importlib.metadata.version("hotswap"), hotswap.__version__)
"""


def call(*words: str | Path, cwd: Path) -> str:
    """Run a command that knows nothing of the checkout, and return what it says."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source archive of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "hatchling", "build", "-d", folder, "-t", "sdist", "-t", "wheel", cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_archive_installs_into_a_clean_environment(archives: dict[str, Path], kind: str, tmp_path: Path) -> None:
    """Packages that hotswap needs are those of this environment; hotswap itself is the archive's."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--disable-pip-version-check"]
    python = home / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", *options, archives[kind], cwd=tmp_path)
    package, *versions = call(python, "-c", FOUND, cwd=tmp_path).split()
    assert Path(package).is_relative_to(packages)
    assert versions == [__version__] * 2
    assert "demo" in call(home / "bin" / "hotswap", "--help", cwd=tmp_path)


def test_the_wheel_has_the_package_alone_and_says_what_it_is(archives: dict[str, Path]) -> None:
    with zipfile.ZipFile(archives["wheel"]) as wheel:
        names = wheel.namelist()
        (about,) = (name for name in names if name.endswith("dist-info/METADATA"))
        told = Parser().parsestr(wheel.read(about).decode())
    assert {name.split("/")[0] for name in names} == {"hotswap", f"hotswap-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]
    assert told["Name"] == "hotswap"
    assert "hotswap.Race(model" in str(told.get_payload())
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_has_what_a_contributor_needs(archives: dict[str, Path]) -> None:
    with tarfile.open(archives["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = call("git", "ls-files", cwd=ROOT).splitlines() if (ROOT / ".git").exists() else []
    for name in (*tracked, "Makefile", "CONTRIBUTING.md", "SECURITY.md", "tests/conftest.py", "docs/index.md"):
        if not name.startswith("."):
            assert name in names, name


def test_versions_agree_everywhere_and_the_changelog_is_short() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert all(len(section.split()) < 1_500 for section in changelog.split("\n## "))
    assert re.findall(r"^## ([\d.]+)", changelog, re.MULTILINE)[0] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_workflow_checks_each_supported_python_with_the_oldest_and_a_new_torch() -> None:
    """The versions are those of `pyproject.toml` and `constraints.txt`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [text.split()[-1] for text in project["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    (oldest,) = re.findall(r"torch>=([\d.]+)", " ".join(project["dependencies"]))
    (newest,) = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    assert re.findall(r'"(3\.\d+)"', workflow) == pythons
    assert re.findall(r'"(\d\.\d+\.\d+)"', workflow) == [f"{oldest}.0", newest]
