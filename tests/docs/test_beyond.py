"""The page on what lies beyond the paper, before the study was run and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.helpers import DOCS, ROOT, run

RESULTS = ROOT / "results" / "extensions"
PAGE = DOCS / "beyond-the-paper.md"
NOT_YET = "The study has not been run yet"

BOTH_WAYS = """
import sys
from dataclasses import replace
sys.path.insert(0, "docs/parts")
import beyond
from tests.report.variants import made

beyond.results = lambda name: None
assert beyond.came_of_it() == beyond.NOT_YET
assert beyond.draw() == []

first, again = made({"ucb1": 1.0, "every_5": 3.0}), made({"ucb1": 1.5})
text = beyond.section(first, None)
for part in ("Ahead of the paper's algorithm", "pictures/beyond-ratios.png", "pictures/beyond-paces.png",
             "- `ucb1`: With the bandit `UCB1()`, the objective", "- `every_5`: With a search", "| `every_5` | 64 |",
             "*Source: `results/extensions`."):
    assert part in text, part
assert "(seeds" not in text and "pictures/beyond-searches.png" not in text
text = beyond.section(first, replace(again, name="confirmation"))
assert "no part in the choice (seeds 0): It is confirmed: `ucb1` is ahead by a factor of 1.3" in text
assert "`results/confirmation`" in text

from pathlib import Path
beyond.results = {"extensions": first, "confirmation": None}.__getitem__
assert beyond.NOT_YET not in beyond.came_of_it()
drawn = beyond.draw(Path(sys.argv[1]))
assert [path.name for path in drawn] == ["beyond-ratios.png", "beyond-bandits.png", "beyond-paces.png"]
assert all(path.stat().st_size > 10_000 for path in drawn)
"""


def test_the_section_before_and_after(tmp_path: Path) -> None:
    done = run("-c", BOTH_WAYS, str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_the_page_says_whether_there_are_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert (NOT_YET in text) == (not RESULTS.exists())
    assert "| `adam_07_armijo` |" in " ".join(text.split())  # what is varied is known before


@pytest.mark.skipif(not RESULTS.exists(), reason="the study of extensions has not been run")
def test_every_picture_is_there_and_shown() -> None:
    text = PAGE.read_text(encoding="utf-8")
    pictures = sorted((DOCS / "pictures").glob("beyond-*.png"))
    assert len(pictures) > 1
    for picture in pictures:
        assert f"(pictures/{picture.name})" in text
