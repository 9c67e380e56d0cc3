"""Where the documentation is, and how its programs are run: in processes of their own, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def run(*arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """Run Python from the repository's root; on one thread, since the tests beside this one need the other cores."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def fences(page: Path, language: str) -> list[str]:
    """The page's code of one language."""
    return [
        match["text"] for match in FENCE.finditer(page.read_text(encoding="utf-8")) if match["language"] == language
    ]
