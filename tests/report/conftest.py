"""What tests of the report share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from hotswap.report import Results, load_results, write
from tests.report.browsing import Opened
from tests.report.variants import train_small

COARSE = 3  # times as coarse as the real ones
LARGEST = 4000  # pixels that a picture may be wide or high, at 150 an inch

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are painted once and coarsely, for tests that ask whether and not how: that takes most of the time."""

    def save(figure: Figure, path: Path) -> None:
        if path.suffix == ".png":
            figure.savefig(path, dpi=150 / COARSE)
            assert max(figure.get_tightbbox().size) < LARGEST / 150, path.name
        else:
            path.write_text("<svg/>", encoding="utf-8")

    monkeypatch.setattr(write, "save", save)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, for tests of what else is in a report."""
    monkeypatch.setattr(write, "save", lambda _, path: path.write_bytes(b""))


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of variants, trained once."""
    return train_small(tmp_path_factory.mktemp("variants") / "small")


@pytest.fixture(scope="session")
def small_study(small_folder: Path) -> Results:
    """Its results."""
    return load_results(small_folder)


def without_browser(why: str) -> None:
    if os.environ.get("HOTSWAP_NEED_BROWSER") == "1":
        pytest.fail(f"{why}, and HOTSWAP_NEED_BROWSER asks for one")
    pytest.skip(f"{why}: the page cannot be looked at")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests of a file; between files none may run, since others have event loops of their own."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        without_browser("there is no browser")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415
    except ImportError:
        without_browser("playwright is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, files: dict[str, Path]) -> Iterator[Opened]:
    """Open one of the file's pages; afterwards nothing may have been logged, have failed or asked of a network."""
    trouble: list[str] = []
    contexts = []

    def look(message: Any) -> None:
        if message.type in {"error", "warning"}:
            trouble.append(message.text)

    def asked(request: Any) -> None:
        if request.url != page_url:
            trouble.append(request.url)

    page_url = ""

    def opened(name: str, width: int = 1280, height: int = 900, **options: Any) -> Any:
        nonlocal page_url
        page_url = files[name].as_uri()
        context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", look)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", asked)
        page.goto(page_url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not trouble
