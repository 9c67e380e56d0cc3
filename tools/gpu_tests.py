"""Run the tests that need a GPU, and keep which passed: `python -m tools.gpu_tests --keep results/benchmarks`.

Files of tests that import a package which is missing here are left out, and named in the record.
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from pathlib import Path

import pytest
import torch

import hotswap

TESTS = Path(__file__).parent.parent / "tests"


class Record:
    """A plugin of pytest that counts how tests end."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tests count once: by their call, or by what kept them from it."""
        if report.when == "call" or report.outcome != "passed":
            getattr(self, report.outcome).append(report.nodeid)

    def counts(self) -> dict[str, object]:
        return {"passed": len(self.passed), "failed": self.failed, "skipped": self.skipped}


def marked_files() -> list[Path]:
    """The files that have such tests, or parameters of such a kind."""
    return [path for path in sorted(TESTS.rglob("*.py")) if "mark.gpu" in path.read_text(encoding="utf-8")]


def files() -> tuple[list[Path], list[str]]:
    """The files of tests to run, and those that cannot be imported here."""
    folders = {path.parent for path in marked_files()}
    every = sorted(path for folder in folders for path in folder.glob("test_*.py"))
    quiet = ["-q", "-q", "--collect-only", "-p", "no:cacheprovider"]
    kept = [path for path in every if pytest.main([*quiet, str(path)]) in (0, 5)]
    return kept, [str(path.relative_to(TESTS)) for path in every if path not in kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the record there, as gpu-tests-cuda.json")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device here, and these tests would all be skipped")
    kept, missing = files()
    record = Record()
    pytest.main(["-q", "-m", "gpu", "-p", "no:cacheprovider", *map(str, kept)], plugins=[record])
    versions = {"hotswap": hotswap.__version__, "torch": str(torch.__version__), "python": platform.python_version()}
    origin = {"device": torch.cuda.get_device_name(), **versions, "date": str(date.today())}
    told = {**origin, "command": "python -m tools.gpu_tests", **record.counts(), "not_imported": missing}
    print(json.dumps(told, indent=1))
    if options.keep is not None:
        (options.keep / "gpu-tests-cuda.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
