"""The page in a browser: what a person sees, points at, clicks and types. Nothing may be fetched or go wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hotswap.report.claims import judge
from hotswap.report.origin import origin_of
from hotswap.report.page import __file__ as page_file
from hotswap.report.page import render_page
from hotswap.report.page.data import page_data
from hotswap.report.results import load_results
from hotswap.report.write import tables_of, tuning_of
from tests.report.algorithms import Greedy, Nadam, further_rows, registered
from tests.report.browsing import HOSTILE, Opened, plain
from tests.report.made_up import results, row
from tests.report.variants import compared
from tests.report.variants import made as made_variants

SHOWN = "#scatter .dot:not(.off)"


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """The results that come with the package."""
    shipped = load_results()
    return page_data(shipped, judge(shipped), tuning_of(shipped), tables_of(shipped), origin_of(shipped))


@pytest.fixture(scope="module")
def files(real: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each page once, as a file."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {"real": real, "small": small(), "empty": empty(), "further": further(), "variants": variants()}
    for name, data in pages.items():
        (folder / f"{name}.html").write_text(render_page(data), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


def moment(
    nll: list[float | None], error: list[float | None], rows: list[tuple[float | None, float]]
) -> dict[str, Any]:
    seeds = [{"seed": seed, "nll": a, "error": b} for seed, (a, b) in enumerate(rows)]
    return {"nll": nll, "error": error, "seeds": seeds}


def setting(algorithm: str, batch: int, label: str, nll: float | None, error: float) -> dict[str, Any]:
    known = nll is not None
    early, late = (
        moment(
            [nll * k if known else None, nll * k / 2 if known else None, nll * k * 2 if known else None],
            [error, error * 0.9, error * 1.1],
            [(nll * k if known else None, error), (nll * k * 2 if known else None, error * 1.1)],
        )
        for k in (10, 1)
    )
    curve: dict[str, Any] = {"epoch": [1, 2, 5], "nll": [0.5, None, nll], "error": [0.1, 0.05, error]}
    if algorithm == "ducb":
        curve |= {"rate": [0.1, 1.0, 10.0], "trials": [3.0, 2.0, 2.0]}
    at = {"2": early, "5": late}
    return {"label": label, "algorithm": algorithm, "batch": batch, "at": at, "curve": curve}


def look(label: str, colour: str, dark: str, **more: Any) -> dict[str, Any]:
    common = {"marker": "circle", "size": 7.5, "dashes": "solid", "layer": 1, "many": False, "top": False}
    return {"label": label, "colour": colour, "dark": dark, **common, **more}


def single(run: str, label: str, algorithm: str, rate: list[float | None]) -> dict[str, Any]:
    curves = {"seconds": [1.0, 10.0, 100.0], "error": [0.2, 0.1, 0.02], "nll": [1.0, 0.1, 0.001]}
    names = {"run": run, "label": label, "short": "64", "algorithm": algorithm, "batch": 64}
    return {**names, **curves, "rate": rate, "norm": [1.0, 0.5, None]}


def small() -> dict[str, Any]:
    """Made up: two batch sizes, a setting that diverged, a name that is markup, single runs and a table."""
    curve = {
        "expected": [0.4, 0.1, 0.05],
        "low": [0.1, 0.05, 0.05],
        "high": [0.9, 0.4, 0.05],
        "tuned": "sgd",
        "reference": "ducb",
        "levels": {"64": 0.02, "128": 0.1},
        "one_run": 0.06,
        "caught_up": 3,
        "caught_up_by_batch": {"64": None, "128": 2},
    }
    claim = {"number": 1, "claim": "It works", "paper": "yes", "ours": "7.7e-06 and 2%", "rule": "any", "verdict": None}
    verdicts = ("reproduced", "partly reproduced", "not reproduced")
    return {
        "name": HOSTILE,
        "datasets": [HOSTILE],
        "algorithms": {
            "ducb": look("DUCB", "#0072b2", "#56b4e9", top=True),
            "adadelta": look("AdaDelta", "#d55e00", "#f0883e", marker="triangle", dashes="dashed"),
            "sgd": look("SGD", "#8a8f98", "#8a8f98", size=3, dashes="dotted", many=True),
        },
        "missing": [],
        "epochs": [2, 5],
        "recorded": [1, 2, 5],
        "settings": [
            setting("ducb", 64, "DUCB, batch 64", 2e-7, 0.0173),
            setting("ducb", 128, "DUCB, batch 128", 3e-6, 0.02),
            setting("adadelta", 64, "AdaDelta, batch 64", 1e-4, 0.025),
            setting("sgd", 64, f"SGD, batch 64, {HOSTILE}", 1e-3, 0.03),
            setting("sgd", 128, "SGD, batch 128, rate 9", None, 0.9),
        ],
        "claims": [claim, *(claim | {"number": i, "verdict": v} for i, v in enumerate(verdicts, start=2))],
        "tuning": {"train_nll": curve, "test_error": curve | {"caught_up": None}},
        "choices": [
            {
                "algorithm": "ducb",
                "rates": [10.0, 1.0, 0.1],
                "share": {"64": {"epoch": [1, 2, 5], "arms": [[0.0, 0.5, 0.5], [0.25, 0.5, 0.0], [1.0, 0.0, 0.0]]}},
                "trials": {"64": {"epoch": [1, 2, 5], "mean": [3.0, None, 2.0]}},
            }
        ],
        "singles": [
            single("a", "DUCB, batch 64", "ducb", [0.1, 1.0, 10.0]),
            single("b", f"SGD {HOSTILE}", "sgd", [0.1, 0.1, 0.1]),
            single("c", "AdaDelta, batch 64", "adadelta", [None, None, None]),
        ],
        "tables": [{"title": "Table 1", "headings": ["batch size", "SGD"], "rows": [["64", "0.4 (9.1)"]], "left": 0}],
        "origin": {
            "devices": ["a device"],
            "precisions": ["tf32"],
            "versions": ["torch 2"],
            "dates": ["2020-01-01", "2020-01-02"],
            "commands": ["hotswap study run <x>"],
            "minutes": 12.34,
            "units": 1,
            "runs": 10,
        },
    }


def further() -> dict[str, Any]:
    """Five algorithms: two that are registered, two that are not known anywhere, and DUCB."""
    strangers = [row(name, test_error=0.02, trials=2.0) for name in ("stranger", "another")]
    made = results([*further_rows(), row("ducb", trials=2.0), *strangers], curves=[*strangers, *further_rows()[:2]])
    with registered(nadam=Nadam, greedy=Greedy):
        return page_data(made, judge(made), [], [], origin_of(made))


def variants() -> dict[str, Any]:
    """Nine variants of two groups, one of them diverged, beside their rivals; DUCB is not among them."""
    names = ("ucb1", "sliding_window", "thompson", "exp3s", "epsilon_greedy", "every_5", "every_20")
    study = made_variants({**dict.fromkeys(names, 1.5), "smoothed": {64: 1.0, 128: 3.0}, "fixed_arm": float("nan")})
    return page_data(study, [], [], [], origin_of(study), compared(study))


def empty() -> dict[str, Any]:
    """A study without a single row."""
    nothing = results(name="nothing", missing=("There are no measurements of training runs: no Figure 1.",))
    return page_data(nothing, [], [], [], origin_of(nothing))


def dot(page: Any, label: str) -> Any:
    """The mark of one setting."""
    at = page.evaluate(
        "label => JSON.parse(document.getElementById('data').textContent).settings.findIndex(s => s.label === label)",
        label,
    )
    return page.locator(f'.dot[data-i="{at}"]')


def centre(page: Any, label: str) -> tuple[float, float]:
    """Where a mark is on the screen, which is scrolled to it first."""
    mark = dot(page, label).locator(".mark")
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def picked(page: Any) -> list[str]:
    return [plain(text) for text in page.locator(".picks li > span").all_inner_texts()]


def switch(page: Any, name: str) -> None:
    page.locator(".controls label", has_text=re.compile(f"^{name}$")).click()


def test_real_results_are_all_drawn(visit: Opened, real: dict[str, Any]) -> None:
    page = visit("real")
    assert page.locator(SHOWN).count() == len(real["settings"]) == 370
    assert "370 of 370 settings" in page.locator("#shown").inner_text()
    head = plain(page.locator("header").inner_text())
    assert "1,110" in head
    assert str(real["tuning"]["test_error"]["caught_up"]) in head
    for sentence in real["missing"]:
        assert sentence.replace("`", "") in head
    assert page.locator("#choice-charts svg[tabindex]").count() == 6
    assert page.locator("#tuning-charts .plot > svg").count() == 2
    assert page.locator(".verdicts tbody tr").count() == len(real["claims"])


def test_the_page_opens_with_the_verdicts(visit: Opened, real: dict[str, Any]) -> None:
    page = visit("real")
    (answer,) = real["answers"]
    columns = page.locator("#answers .outcome")
    for column, group in zip(columns.all(), answer["groups"], strict=True):
        assert column.locator("h3 b").inner_text().split()[-1] == str(len(group["cases"]))
        told = column.locator("li > span").all_inner_texts()
        assert told == [claim["claim"] for claim in real["claims"] if claim["verdict"] == group["outcome"]]
    above = page.locator("#answers").bounding_box()
    assert above["y"] + above["height"] < page.locator("#runs").bounding_box()["y"]
    page = visit("variants")
    cases = page.locator("#answers .outcome li").all_inner_texts()
    assert len(cases) == 9
    assert visit("empty").locator("#answers").inner_text() == ""


def test_no_drawing_has_a_number_that_is_none(visit: Opened) -> None:
    for name in ("real", "small"):
        drawn = visit(name).evaluate("[...document.querySelectorAll('svg')].map(s => s.outerHTML).join('')")
        assert not re.search(r"NaN|Infinity|undefined|null", drawn)


def test_pointing_at_a_mark_tells_setting_seeds_and_both_measures(visit: Opened) -> None:
    page = visit("small")
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.mouse.move(*centre(page, "DUCB, batch 64"))
    text = plain(tip.inner_text())
    assert "DUCB, batch 64" in text
    assert "2 seeds, epoch 5" in text
    rows = [tuple(plain(cell) for cell in row.locator("td").all_inner_texts()) for row in tip.locator("tr").all()[1:]]
    assert rows == [
        ("median", "2.0 × 10⁻⁷", "1.73 %"),
        ("lowest", "1.0 × 10⁻⁷", "1.56 %"),
        ("highest", "4.0 × 10⁻⁷", "1.90 %"),
        ("seed 0", "2.0 × 10⁻⁷", "1.73 %"),
        ("seed 1", "4.0 × 10⁻⁷", "1.90 %"),
    ]
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_clicking_marks_shows_their_curves_up_to_four(visit: Opened) -> None:
    page = visit("real")
    page.locator("#clear").click()
    assert "No setting is picked" in page.locator("#curves").inner_text()
    assert page.locator("#curves svg").count() == 0
    page.mouse.click(*centre(page, "DUCB, batch 512"))
    assert picked(page) == ["DUCB, batch 512"]
    titles = page.locator("#curves .mini text").all_text_contents()
    for title in ("Training objective", "Test error", "Learning rate, DUCB", "Trials per step, DUCB"):
        assert title in titles
    for size in (64, 256, 128, 1024):
        page.mouse.click(*centre(page, f"DUCB, batch {size}"))
    assert sorted(picked(page)) == [f"DUCB, batch {size}" for size in (1024, 128, 256, 64)]  # the oldest made room
    assert page.locator("#curves .mini .plot").first.locator("path.line").count() == 4
    page.mouse.click(*centre(page, "DUCB, batch 256"))  # once more takes it away
    assert len(picked(page)) == 3


def test_curves_of_others_have_two_measures(visit: Opened) -> None:
    page = visit("small")
    page.locator("#clear").click()
    page.mouse.click(*centre(page, "AdaDelta, batch 64"))
    assert page.locator("#curves .mini .plot").count() == 2


def test_filters_leave_exactly_what_was_asked(visit: Opened, real: dict[str, Any]) -> None:
    page = visit("real")
    switch(page, "SGD")
    assert page.locator(SHOWN).count() == 10
    switch(page, "64")
    switch(page, "128")
    assert page.locator(SHOWN).count() == 6
    assert "6 of 370 settings" in page.locator("#shown").inner_text()
    switch(page, "SGD")
    left = [s for s in real["settings"] if s["batch"] not in {64, 128}]
    assert page.locator(SHOWN).count() == len(left)
    for name in ("SGD", "DUCB", "AdaDelta"):
        switch(page, name)
    assert page.locator(SHOWN).count() == 0
    assert "Nothing is left to draw" in page.locator("#shown").inner_text()


def test_switching_the_epoch_moves_marks(visit: Opened) -> None:
    page = visit("small")
    late = centre(page, "DUCB, batch 64")
    switch(page, "2")
    early = centre(page, "DUCB, batch 64")
    assert early[0] > late[0] + 10  # ten times the objective
    assert early[1] == pytest.approx(late[1], abs=1)  # the same error
    page.mouse.move(*early)
    assert "2.0 × 10⁻⁶" in plain(page.locator("#tip").inner_text())


def test_what_is_not_finite_is_counted_and_not_drawn(visit: Opened) -> None:
    page = visit("small")
    assert page.locator(SHOWN).count() == 4
    assert "1 not drawn" in page.locator("#shown").inner_text()
    switch(page, "SGD")
    assert "not drawn" not in page.locator("#shown").inner_text()


def test_keyboard_alone_is_enough(visit: Opened) -> None:
    page = visit("small")
    page.locator("#clear").click()
    page.locator(".controls input").last.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('#scatter > svg')")
    assert "DUCB, batch 128" in page.locator("#live").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "DUCB, batch 64" in page.locator("#live").inner_text()
    assert page.locator("#tip").is_visible()
    assert "DUCB, batch 64" in page.locator("#tip").inner_text()
    page.keyboard.press("Enter")
    assert picked(page) == ["DUCB, batch 64"]
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert picked(page) == ["DUCB, batch 64", "AdaDelta, batch 64"]
    page.keyboard.press("Escape")
    assert picked(page) == []
    assert page.locator("#tip").is_hidden()


def test_page_keys_reach_every_mark(visit: Opened, real: dict[str, Any]) -> None:
    page = visit("real")
    page.locator("#scatter > svg").focus()
    heard = page.evaluate(
        """count => {
          const plot = document.querySelector('#scatter > svg'), heard = new Set();
          for (let i = 0; i < count; i++) {
            plot.dispatchEvent(new KeyboardEvent('keydown', {key: 'PageDown'}));
            heard.add(document.getElementById('live').textContent.split('. Training')[0]);
          }
          return heard.size;
        }""",
        len(real["settings"]),
    )
    assert heard == len(real["settings"])


def test_other_charts_tell_values_too(visit: Opened) -> None:
    page = visit("small")
    page.locator("#choice-charts svg").first.focus()
    assert page.locator("#tip").is_visible()
    assert "Batch 64, epoch 1" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert "Batch 64, epoch 2" in page.locator("#tip").inner_text()
    assert "Rate 10: 25.0 % of the steps" in plain(page.locator("#tip").inner_text())
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert "Nothing moved: 25.0 % of the steps" in plain(page.locator("#tip").inner_text())


def test_tuning_says_when_search_catches_up(visit: Opened) -> None:
    captions = [plain(text) for text in visit("small").locator("#tuning .caption").all_inner_texts()]
    assert "needs 3 trainings of SGD" in captions[0]
    assert "64: never, 128: 2" in captions[0]
    assert "never matches it" in captions[1]


def test_a_bayesian_search_is_drawn_and_told_beside_the_random_one(visit: Opened, real: dict[str, Any]) -> None:
    page = visit("real")
    charts = page.locator("#tuning-charts figure")
    error = real["tuning"]["test_error"]
    assert [charts.nth(i).locator("path.line.bayesian").count() for i in range(2)] == [1, 1]
    assert charts.nth(1).locator("path.band").count() == 2
    assert f"a Bayesian search {error['bayesian']['caught_up']}." in plain(
        charts.nth(1).locator("p.caption").inner_text()
    )
    cells = [line.split("\t") for line in charts.nth(1).locator("tbody tr").all_inner_texts()]
    assert [row[0] for row in cells] == ["64", "128", "256", "512", "1024"]
    assert cells[0][1:] == ["never", "never"]
    for size, *shown in cells[1:]:
        ways = (error["until_by_batch"], error["bayesian"]["until_by_batch"])
        assert shown == [f"{half} ({low} to {high})" for half, low, high in (until[size].values() for until in ways)]
    charts.nth(1).locator("svg").first.focus()
    for _ in range(len(error["levels"]) + 1):
        page.keyboard.press("ArrowDown")
    assert "SGD, Bayesian search" in page.locator("#tip").inner_text()


def test_a_page_without_a_bayesian_search_has_one_curve(visit: Opened) -> None:
    page = visit("small")
    assert page.locator("#tuning .bayesian").count() == 0
    assert page.locator("#tuning path.band").count() == 2  # one in each chart
    assert page.locator("#tuning table").count() == 0


def test_single_runs_are_highlighted_in_all_panels(visit: Opened) -> None:
    page = visit("small")
    assert page.locator("#clock .plot > svg").count() == 4
    assert "1 run not drawn" in page.locator("#clock").inner_text()
    page.locator(".legend button").first.focus()
    assert page.locator("#clock path.line.lifted").count() == 4
    assert page.locator("#clock path.line.dim").count() == 7  # two others in each panel, AdaDelta has no rate
    page.locator(".legend button").first.blur()
    assert page.locator("#clock .dim").count() == 0


def test_tables_claims_and_origin(visit: Opened) -> None:
    page = visit("small")
    assert page.locator("#tables td").all_inner_texts() == ["64", "0.4 (9.1)"]
    badges = [text.replace("\n", " ") for text in page.locator(".badge").all_inner_texts()]
    assert [re.sub(r"\s+", " ", text) for text in badges] == [
        "– no verdict",
        "✓ reproduced",
        "◐ partly reproduced",
        "✕ not reproduced",
    ]
    assert "7.7 × 10⁻⁶ and 2 %" in plain(page.locator("#claims").inner_text())
    page.locator("summary").first.click()
    assert page.locator("details p").first.is_visible()
    assert page.locator("#origin code").all_inner_texts() == ["hotswap study run <x>"]
    assert "12.3 minutes" in page.locator("#origin").inner_text()


def test_names_never_become_markup(visit: Opened) -> None:
    page = visit("small")
    assert HOSTILE in page.locator("#lead").inner_text()
    assert HOSTILE in page.title()
    assert page.get_by_text("x", exact=True).count() == 0
    page.mouse.move(*centre(page, f"SGD, batch 64, {HOSTILE}"))
    assert HOSTILE in page.locator("#tip").inner_text()


@pytest.mark.parametrize("name", ["real", "small", "empty"])
def test_fits_a_phone(visit: Opened, name: str) -> None:
    page = visit(name, width=360, height=740)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if name == "real":
        page.mouse.move(*centre(page, "DUCB, batch 64"))
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


def test_captions_wrap_on_a_phone(visit: Opened) -> None:
    """Tables are wider than the screen, and scroll; what they are is read without."""
    page = visit("real", width=390, height=844)
    boxes = [caption.bounding_box() for caption in page.locator("#tables caption span").all()]
    assert len(boxes) == 2
    for box in boxes:
        assert box["x"] + box["width"] <= 390
        assert box["height"] > 40  # more than one line


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_marks_do_not_overlap(visit: Opened, width: int) -> None:
    page = visit("real", width=width, height=844)
    shown = "#scatter .dot:not(.off) .name:not(.off), #scatter .picked text"
    boxes = [name.bounding_box() for name in page.locator(shown).all()]
    assert len(boxes) >= 8
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
            down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
            assert across < 3 or down < 5  # letters are smaller than the boxes around them


LEADERS = """host => [...host.querySelectorAll('.plot > svg')].map(chart => [...chart.querySelectorAll('.leader')]
  .map(leader => leader.getAttribute('d').match(/[-\\d.]+/g).map(Number)))"""


def crossing(one: list[float], other: list[float]) -> bool:
    def side(a: list[float], b: list[float], c: list[float]) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    a, b, c, d = one[:2], one[2:], other[:2], other[2:]
    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def test_leaders_can_be_followed(visit: Opened) -> None:
    """From a dot at the end of each line to its label; they do not cross, and are lifted with the line."""
    page = visit("real")
    charts = page.locator("#clock-charts").evaluate(LEADERS)
    assert [len(leaders) for leaders in charts] == [12, 12, 7, 12]
    for leaders in charts:
        assert not any(crossing(one, other) for n, one in enumerate(leaders) for other in leaders[n + 1 :])
    assert page.locator("#clock .tail").count() == sum(map(len, charts))
    page.locator(".legend button").first.focus()
    assert page.locator("#clock .leader.lifted").count() == 4


def test_tapping_a_mark_tells_and_picks_it(visit: Opened) -> None:
    page = visit("real", width=390, height=844, has_touch=True, is_mobile=True)
    page.locator("#scatter").scroll_into_view_if_needed()
    page.get_by_role("button", name="Clear").tap()
    assert page.locator(".picks li").count() == 0
    page.touchscreen.tap(*centre(page, "DUCB, batch 64"))
    assert page.locator("#tip").inner_text().startswith("DUCB, batch 64")
    assert page.locator(".picks li").count() == 1
    page.touchscreen.tap(12, 12)
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("leaves", ["tab", "blur", "resize"])
def test_the_tooltip_closes_when_the_focus_leaves(visit: Opened, leaves: str) -> None:
    page = visit("real")
    page.locator("#scatter svg").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").is_visible()
    if leaves == "tab":
        page.keyboard.press("Tab")
    elif leaves == "blur":
        page.evaluate("document.activeElement.blur()")
    else:  # figures are drawn again, and what had the focus is gone
        page.set_viewport_size({"width": 700, "height": 900})
    page.locator("#tip").wait_for(state="hidden", timeout=60_000)


def test_on_paper_there_is_nothing_to_press(visit: Opened) -> None:
    page = visit("small", color_scheme="dark")
    page.mouse.move(*centre(page, "DUCB, batch 64"))
    assert page.locator(".controls").is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    for hidden in (".controls", "nav", "#tip", "#clear"):
        assert page.locator(hidden).is_hidden()
    assert page.locator(".paper-only").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_follows_a_dark_theme(visit: Opened) -> None:
    colours = {
        visit("small", color_scheme=theme).evaluate("getComputedStyle(document.body).backgroundColor")
        for theme in ("light", "dark")
    }
    assert len(colours) == 2


def test_drawn_again_for_another_width(visit: Opened) -> None:
    page = visit("small")
    before = page.locator("#scatter > svg").get_attribute("viewBox")
    page.set_viewport_size({"width": 600, "height": 900})
    page.wait_for_function(
        "old => document.querySelector('#scatter > svg').getAttribute('viewBox') !== old", arg=before
    )
    assert page.locator(SHOWN).count() == 4
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_empty_study_is_told_in_words(visit: Opened) -> None:
    page = visit("empty")
    assert page.locator(".plot > svg").count() == 0
    assert page.locator(".controls").is_hidden()
    for section in ("runs", "tuning", "choices", "clock", "tables", "claims"):
        assert page.locator(f"#{section} .none").count() >= 1, section
        assert len(page.locator(f"#{section} .none").first.inner_text()) > 15
    assert "Nobody can say" in page.locator("#origin").inner_text()
    assert "no training runs yet" in page.locator("#lead").inner_text()


@pytest.mark.parametrize(("theme", "key"), [("light", "colour"), ("dark", "dark")])
def test_any_algorithm_is_drawn_as_it_says(visit: Opened, theme: str, key: str) -> None:
    page = visit("further", color_scheme=theme)
    labels = ["Greedy", "DUCB", "stranger", "another", "NAdam"]
    switches = page.locator(".controls fieldset").nth(1).locator("label").all_inner_texts()
    assert sorted(switches) == sorted(labels)
    assert switches[0] == "Greedy"  # what lies on top
    told = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    fills = page.evaluate(
        """key => JSON.parse(document.getElementById('data').textContent).settings.map((setting, i) => {
          const { algorithms } = JSON.parse(document.getElementById('data').textContent);
          const mark = document.querySelector(`.dot[data-i="${i}"] .mark`), sample = document.createElement('i');
          sample.style.color = algorithms[setting.algorithm][key];
          document.body.append(sample);
          return [getComputedStyle(mark).fill, getComputedStyle(sample).color, mark.tagName];
        })""",
        key,
    )
    assert len(fills) == len(told["settings"]) == 13
    assert all(fill == expected for fill, expected, _ in fills)
    assert len({fill for fill, _, _ in fills}) == 5
    page.mouse.move(*centre(page, "NAdam, batch 64, lr 0.1, decay1 0.8"))
    assert "NAdam, batch 64, lr 0.1, decay1 0.8" in page.locator("#tip").inner_text()
    assert page.locator("#clock path.line").count() == 4 * 4
    switch(page, "stranger")
    assert page.locator(SHOWN).count() == 12


def test_no_algorithm_is_named_in_style_or_script() -> None:
    folder = Path(page_file).parent
    for name in ("page.css", "benchmark.css", "plot.js", "answers.js", "page.js", "benchmark.js", "alone.js"):
        text = (folder / name).read_text(encoding="utf-8")
        assert not re.search(r"\b(sgd|adadelta|ducb|adam)\b", text), name  # labels in sentences have capitals


def test_page_is_one_file(files: dict[str, Path]) -> None:
    text = files["real"].read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", text)
    assert "/*DATA*/" not in text
    assert len(text) < 2_000_000


def test_variants_have_a_section_of_their_own(visit: Opened) -> None:
    page = visit("variants")
    assert page.locator("nav a").first.inner_text() == "Beyond the paper"
    assert page.locator("#claims").count() == 0
    assert page.locator('nav a[href="#claims"]').count() == 0
    verdict = page.locator("#beyond-verdict")
    assert plain(verdict.inner_text()).startswith("Ahead of the paper's algorithm, AdaDelta and the median")
    assert "won" in verdict.get_attribute("class")
    tables = page.locator("#beyond-tables table")
    assert tables.count() == 2
    rows = [line.split("\t") for line in tables.nth(1).locator("tbody tr").all_inner_texts()]
    assert rows[4][:4] == ["ucb1", "bandit=UCB1()", "0.75", "0.75"]
    assert tables.nth(1).locator("code").first.inner_text() == "paper"


def test_variants_can_be_looked_at_by_group_and_batch_size(visit: Opened) -> None:
    page = visit("variants")
    names = page.locator("#beyond-legend button")
    rivals = ["the paper's", "AdaDelta", "SGD, best tenth"]
    bandits = ["ucb1", "sliding window", "thompson", "exp3s", "epsilon greedy", "smoothed"]
    assert names.all_inner_texts() == [*rivals, *bandits]  # what diverged has no line
    assert page.locator("#beyond-chart path.line").count() == 9
    assert page.locator("#beyond-chart path.band").count() == 1
    page.get_by_label("Fewer searches").check(force=True)
    assert names.all_inner_texts() == [*rivals, "every 5", "every 20"]
    page.locator('#beyond-controls input[value="128"]').check(force=True)
    assert page.locator("#beyond-chart svg").first.get_attribute("aria-label").endswith("batch 128")
    page.locator('#beyond-legend [data-line="every_5"]').hover()
    assert "dim" in page.locator('#beyond-chart path[data-line="every_20"]').get_attribute("class")


def test_ratios_are_a_table_that_marks_who_is_ahead_of_all(visit: Opened) -> None:
    page = visit("variants")
    rows = page.locator(".ratios tbody tr:not(.group)")
    texts = {row[0]: row[1:] for row in (line.split("\t") for line in rows.all_inner_texts())}
    assert list(texts)[:3] == ["AdaDelta", "SGD, best tenth", "SGD, best"]
    assert texts["AdaDelta"] == ["4.0"] * 4
    assert texts["smoothed"] == ["0.50", "1.5", "0.50", "1.5"]
    assert texts["fixed arm"] == ["∞"] * 4
    marked = page.locator(".ratios td.first")
    assert marked.count() == 7 * 4 + 2
    assert page.locator(".ratios .group").all_inner_texts() == ["Other bandits", "Fewer searches"]


def test_a_page_without_variants_or_benchmark_has_no_such_section(visit: Opened) -> None:
    for name in ("real", "small", "empty"):
        page = visit(name)
        for section in ("beyond", "benchmark"):
            assert page.locator(f"#{section}").count() == 0
            assert page.locator(f'nav a[href="#{section}"]').count() == 0


def test_of_many_that_choose_one_is_shown_at_a_time(visit: Opened) -> None:
    page = visit("variants")
    choices = page.locator("#choice-controls input")
    assert choices.count() == 10
    assert page.locator("#choice-charts figure").count() == 1  # trials; of arms there are no records
    page.locator('#choice-controls input[value="every_5"]').check(force=True)
    label = page.locator("#choice-charts figure svg").first.get_attribute("aria-label")
    assert label == "Trials per step against epochs, every_5"
