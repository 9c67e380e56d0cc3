"""The site builds without a warning, needs no network, and covers the public names."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest

import hotswap
from tests.docs.helpers import DOCS, PAGES, run

needs_mkdocs = pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed")
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*rel=[\"']?(?:stylesheet|preconnect)"
    r"[^>]*href=[\"']?(?:https?:)?//"
)


@needs_mkdocs
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        assert not LOADED.search(page.read_text(encoding="utf-8")), page
    assert not list((tmp_path / "site").rglob("*.py"))


def test_the_reference_has_every_public_name() -> None:
    shown = set(re.findall(r"^::: hotswap\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert shown - {"reference"} == set(hotswap.__all__) - {"__version__"}


def test_the_reference_shows_no_base_class_that_it_does_not_have() -> None:
    """Bases are shown, unless a page says otherwise: those of ours must be in the reference themselves."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    entries = re.findall(r"^::: (hotswap[\w.]*)\n((?: +.*\n)*)", text, re.MULTILINE)
    shown = {id(resolve_name(name)) for name, _ in entries}
    for name, options in entries:
        thing = resolve_name(name)
        if isinstance(thing, type) and "show_bases: false" not in options:
            ours = [base for base in thing.__bases__ if base.__module__.startswith("hotswap")]
            assert all(id(base) in shown for base in ours), name


def test_pages_speak_of_nothing_that_readers_do_not_have() -> None:
    for page in PAGES:
        assert "../shared" not in page.read_text(encoding="utf-8"), page
