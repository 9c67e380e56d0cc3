"""Generated blocks are as they would be generated now."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.image
import pytest

from hotswap.report import load_results
from hotswap.report.figures import draw_figure_1, draw_tuning, save
from hotswap.report.write import tuning_of
from tests.docs.helpers import DOCS, PAGES, ROOT, run

DRIFT = """
import runpy
filled = runpy.run_path("docs/numbers.py")["filled"]
right, drifted = filled("a <!-- numbers: runs -->7<!-- /numbers --> b")
assert drifted == ["runs"], drifted
assert right != "a <!-- numbers: runs -->7<!-- /numbers --> b"
assert filled(right) == (right, [])
lines, drifted = filled("<!-- numbers: source -->\\nold\\n<!-- /numbers -->")
assert drifted == ["source"]
assert lines.startswith("<!-- numbers: source -->\\n\\n*Source")
assert filled(lines) == (lines, [])
try:
    filled("<!-- numbers: nothing -->7<!-- /numbers -->")
except SystemExit as error:
    assert "no block 'nothing'" in str(error)
else:
    raise AssertionError
"""


def test_nothing_has_drifted() -> None:
    done = run("docs/numbers.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_that_drifted_is_noticed_and_put_right() -> None:
    done = run("-c", DRIFT)
    assert done.returncode == 0, done.stderr


def test_an_unknown_argument_changes_nothing() -> None:
    done = run("docs/numbers.py", "--chekc")
    assert done.returncode == 2
    assert "--check" in done.stdout


def test_every_block_is_closed_and_in_a_place_where_it_can_be() -> None:
    for page in (*PAGES, ROOT / "README.md"):
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- numbers: ") == text.count("<!-- /numbers -->"), page
        # a comment at the beginning of a line ends the paragraph, so one inside a sentence must not stand there
        assert not re.search(r"^<!-- numbers: [^>]* -->[^\n]", text, re.MULTILINE), page


def test_pages_with_results_say_what_made_them() -> None:
    measured = re.compile(r"<!-- numbers: (headline|medians|trials|rates|claims|claim \d) -->")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if measured.search(text):
            assert re.search(r"<!-- numbers: (source|provenance) -->", text), page


def test_every_claim_that_fails_is_discussed() -> None:
    """The page's prose is about claims 1, 3 and 6; should a verdict change, it has to be written again."""
    claims = (DOCS / "reproducing.md").read_text(encoding="utf-8")
    page = (DOCS / "not-reproduced.md").read_text(encoding="utf-8")
    failed = re.findall(r"^\| (\d) \|.*\*\*(?:partly|not) reproduced\*\* \|$", claims, re.MULTILINE)
    assert {"1", "3", "6"} <= set(failed)
    for number in failed:
        assert f"<!-- numbers: claim {number} -->" in page, number


def test_every_picture_of_variants_is_shown() -> None:
    text = (DOCS / "beyond-the-paper.md").read_text(encoding="utf-8")
    pictures = sorted((DOCS / "pictures").glob("beyond-*.png"))
    assert len(pictures) > 1
    assert all(f"(pictures/{picture.name})" in text for picture in pictures)


@pytest.mark.parametrize("name", ["figure-1", "tuning"])
def test_pictures_are_drawn_from_the_results(name: str, tmp_path: Path) -> None:
    """A picture in the documentation is the one that the report draws now, as far as an eye can tell."""
    results = load_results(ROOT / "results" / "paper")
    figure = draw_figure_1(results.metrics) if name == "figure-1" else draw_tuning(tuning_of(results), results.looks)
    assert figure is not None
    save(figure, tmp_path / "now.png")
    ours, drawn = (matplotlib.image.imread(path) for path in (ROOT / f"docs/pictures/{name}.png", tmp_path / "now.png"))
    assert ours.shape == drawn.shape
    assert abs(ours - drawn).mean() < 0.01
