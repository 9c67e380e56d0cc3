"""The benchmark's section in a browser: what a person sees, switches, sorts and points at."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotswap.bench.methods import METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.report import section_data
from hotswap.bench.report.methods import three_digits
from hotswap.bench.runs import PERCENTS, Result
from hotswap.report.page import render_benchmark, render_page
from tests.bench.helpers import by_id, made, whole
from tests.report.browsing import HOSTILE, Opened, plain
from tests.report.test_page import empty

LINES = "#bench-chart path.line"
PROFILE = "#bench-profile path.line"


def results() -> dict[str, Result]:
    """Two workloads with a reference and one without, on which a name is markup."""
    lost = [1.0, 0.9, *[math.nan] * (len(PERCENTS) - 2)]
    stranger = made("recurrent_text", "sgd", end=0.4)
    hostile = replace(stranger, run=replace(stranger.run, method=HOSTILE))
    return {**whole(), **by_id(hostile, made("recurrent_text", "adamw", curve=lost, state="diverged"))}


def crowded() -> dict[str, Result]:
    """On one workload all methods are level, and all that have a second configuration tried it."""
    level = [made("autoencoder", name, seed, 0.1) for name in METHODS if name != REFERENCE for seed in range(5)]
    tried = [name for name, method in METHODS.items() if method.second is not None]
    again = [made("autoencoder", name, end=0.05 + 0.01 * i, configuration=SECOND) for i, name in enumerate(tried)]
    return {**whole(), **by_id(*level, *again)}


def contested() -> dict[str, Result]:
    """Ours are ahead, but the worst of their seeds is worse than the best of the other's."""
    reference = {name: result for name, result in whole().items() if result.run.method == REFERENCE}
    ends = {"hotswap_sgd": (0.09, 0.1, 0.12), "adamw": (0.11, 0.2, 0.3)}
    runs = [made("autoencoder", name, seed, end) for name, three in ends.items() for seed, end in enumerate(three)]
    return {**reference, **by_id(*runs)}


@pytest.fixture(scope="module")
def section() -> dict[str, Any]:
    found = section_data(results())
    assert found is not None
    return found


@pytest.fixture(scope="module")
def files(section: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    alone = section_data(by_id(made("paper_network", "sgd", end=0.3)))
    pages = {
        "alone": render_benchmark(section),
        "study": render_page({**empty(), "benchmark": section}),
        "little": render_benchmark(alone),
        "nothing": render_benchmark(None),
        "crowded": render_benchmark(section_data(crowded())),
        "contested": render_benchmark(section_data(contested())),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


def rows(page: Any, table: str = "#bench-table") -> dict[str, list[str]]:
    lines = (line.split("\t") for line in page.locator(f"{table} tbody tr").all_inner_texts())
    return {line[0]: [cell.strip() for cell in line[1:]] for line in lines}


def choose(page: Any, workload: str) -> None:
    page.locator(f'#bench-workloads input[value="{workload}"]').check(force=True)


def line(section: dict[str, Any], workload: str, method: str, *, second: bool = False) -> dict[str, Any]:
    (lines,) = (one["lines"] for one in section["workloads"] if one["name"] == workload)
    found: dict[str, Any] = next(one for one in lines if (one["method"], one["second"]) == (method, second))
    return found


def test_scores_are_a_table_that_sorts(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    shown = rows(page)
    methods = {row["method"]: METHODS[row["method"]].title for row in section["overall"]}
    assert list(shown) == [*methods.values(), "SaLSa, second"]
    for row in section["overall"]:
        *means, misses = shown[methods[row["method"]]][:6]
        scores = shown[methods[row["method"]]][6:]
        assert means == [row["texts"][name] for name in ("mean", "again", "10", "30", "worst")]
        assert misses == str(len(row["misses"]))
        for text, workload in zip(scores, section["scored"], strict=True):
            one = line(section, workload, row["method"])
            assert text == one["text"] + ("†" if one["unfinished"] or one["spoiled"] else "")
    second = line(section, "paper_network", "salsa", second=True)
    assert shown["SaLSa, second"] == [*6 * [""], "", second["text"]]
    page.get_by_role("button", name="worst").click()
    values = [float(cells[4]) for cells in rows(page).values() if cells[4]]
    assert values == sorted(values)
    assert page.locator("#bench-table th[aria-sort=ascending]").inner_text() == "worst"
    page.locator("#bench-table").get_by_role("button", name="paper network").click()
    values = [float(cells[7].rstrip("†")) for cells in rows(page).values()]
    assert values == sorted(values)
    assert "The paper's network on MNIST" in page.locator("#bench-about").inner_text()  # and its curves are shown


def test_ours_are_marked_and_counted_against_the_others(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    ours = {METHODS[name].title for name in section["methods"] if name in METHODS and METHODS[name].ours}
    assert set(page.locator("#bench-table th.ours").all_inner_texts()) == ours
    headings = page.locator("#bench-duels thead th").all_inner_texts()[1:]
    assert set(headings) == ours
    shown = rows(page, "#bench-duels")
    for duel in section["duels"]:
        cell = shown[METHODS[duel["other"]].title][headings.index(METHODS[duel["ours"]].title)]
        assert cell == f"{duel['ahead']} of {duel['of']} ({duel['surely']})"
    (answer,) = section["answers"]
    heads = [text.split() for text in page.locator(".outcome h3").all_inner_texts()]
    assert heads == [
        [sign, str(len(group["cases"])), "of", "2", group["outcome"]]
        for sign, group in zip("✓=✕", answer["groups"], strict=True)
    ]
    assert page.locator(".outcome li").count() == sum(len(group["cases"]) for group in answer["groups"]) == 2
    shown = rows(page, "#answers")
    assert ours < set(shown)
    for cells in shown.values():
        assert len(cells) == 1 + 2  # the mean, and the workloads
    assert page.locator("#bench-verdict table").count() == len(section["grids"]) == 2
    assert page.locator("#bench-verdict p").inner_text().startswith("In hindsight")


def test_another_workload_has_its_own_curves_and_numbers(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    assert page.locator("#bench-chart .level").count() == 1
    choose(page, "paper_network")
    assert page.locator("#bench-chart svg").first.get_attribute("aria-label").endswith("the paper's network on MNIST")
    names = page.locator("#bench-legend li").all_inner_texts()
    assert len(names) == len(section["methods"])  # one is missing, one has a second configuration, one is elsewhere
    assert any("SaLSa, second" in name for name in names)
    assert any("3 of 5 diverged or raised an error" in name for name in names)
    page.locator("#bench-numbers summary").click()
    shown = rows(page, "#bench-numbers")
    one = line(section, "paper_network", "adamw")
    assert shown["AdamW"][2:5] == [one["text"], *one["texts"].values()]
    choose(page, "recurrent_text")
    assert page.locator("#bench-chart .level").count() == 0
    assert "no tuned reference yet, and so no scores" in page.locator("#bench-about").inner_text()
    assert HOSTILE in page.locator("#bench-legend").inner_text()
    assert page.get_by_text("x", exact=True).count() == 0


def test_methods_are_switched_on_and_off_everywhere(visit: Opened) -> None:
    page = visit("alone")
    before = page.locator(LINES).count(), page.locator(PROFILE).count()
    button = page.locator('#bench-legend [data-line="hotswap_sgd"]')
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert (page.locator(LINES).count(), page.locator(PROFILE).count()) == (before[0] - 1, before[1] - 1)
    page.keyboard.press("Enter")
    assert page.locator(LINES).count() == before[0]
    page.get_by_role("button", name="All", exact=True).click()
    assert page.locator(LINES).count() == page.locator("#bench-legend li").count()
    page.get_by_role("button", name="Ours", exact=True).click()
    ours = sum(method.ours for method in METHODS.values())
    assert page.locator(f"{LINES}.ours").count() == ours
    assert page.locator(LINES).count() == ours + 1  # and the reference
    for _ in range(ours + 1):
        page.locator("#bench-legend [aria-pressed=true]").first.click()
    assert "Every method is switched off" in page.locator("#bench-chart").inner_text()


LOOKS = """lines => lines.map(line => {
    const { stroke, strokeDasharray } = getComputedStyle(line);
    return [line.dataset.line, stroke, strokeDasharray];
})"""
KEYS = """buttons => buttons.map(button => {
    const { borderTopColor, borderTopStyle, maskImage, maskSize } = getComputedStyle(button, "::before");
    return [borderTopColor, borderTopStyle, maskImage, maskSize].join();
})"""


@pytest.mark.parametrize(("media", "scheme"), [("screen", "light"), ("screen", "dark"), ("print", "light")])
def test_no_two_lines_look_alike(visit: Opened, media: str, scheme: str) -> None:
    page = visit("crowded", color_scheme=scheme)
    page.get_by_role("button", name="All", exact=True).click()
    choose(page, "autoencoder")
    page.emulate_media(media=media, color_scheme=scheme)
    drawn = page.locator(LINES).evaluate_all(LOOKS)
    assert len(drawn) == len(METHODS) + sum(method.second is not None for method in METHODS.values())
    assert len({(colour, dashes) for _, colour, dashes in drawn}) == len(drawn)
    first, second = ({look[2] for look in drawn if look[0].endswith(" second") is side} for side in (False, True))
    assert not first & second  # not even in another colour
    keys = page.locator("#bench-legend button").evaluate_all(KEYS)
    assert len(set(keys)) == len(keys) == len(drawn)


def test_bands_are_of_whom_the_caption_says(visit: Opened) -> None:
    page = visit("alone")
    opacity = "bands => bands.map(band => getComputedStyle(band).opacity)"
    always = page.locator("#bench-chart .band.ours, #bench-chart .band.reference").evaluate_all(opacity)
    assert float(min(always)) > 0
    other = page.locator('#bench-chart .band[data-line="adamw"]')
    assert other.evaluate_all(opacity) == ["0"]
    page.locator('#bench-legend [data-line="adamw"]').focus()
    assert float(*other.evaluate_all(opacity)) > 0
    caption = page.locator("#benchmark .caption", has_text="Medians over seeds")
    bands = "Medians over seeds; bands from the least to the greatest, of ours and of the reference"
    assert caption.inner_text().startswith(f"{bands}; of another method when you point at it. Point at a line")
    page.emulate_media(media="print")
    assert caption.inner_text().startswith(f"{bands}. A second configuration")


def test_a_doubt_is_explained_where_there_is_one(visit: Opened) -> None:
    page = visit("contested")
    assert page.locator(".outcome small").all_inner_texts() == ["; seeds overlap"]
    assert (
        "“Seeds overlap”: the ranges of both methods over their seeds" in page.locator(".answer .caption").inner_text()
    )
    page = visit("alone")
    assert page.locator(".outcome small").count() == 0
    assert "overlap" not in page.locator("body").inner_text()


def test_all_columns_of_duels_are_seen(visit: Opened) -> None:
    page = visit("crowded", width=1300)
    assert " of 2 (0), 1 level" in page.locator("#bench-duels").inner_text()  # as wide as a cell is
    table = page.locator("#bench-duels .scroll")
    assert table.evaluate("host => host.scrollWidth <= host.clientWidth")
    page.set_viewport_size({"width": 420, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # the table scrolls, not the page


def test_pointing_at_a_name_lifts_its_line_in_both_figures(visit: Opened) -> None:
    page = visit("alone")
    page.locator('#bench-legend [data-line="hotswap_sgd"]').focus()
    for figure in (LINES, PROFILE):
        assert page.locator(f"{figure}.lifted").count() == 1
        assert page.locator(f"{figure}.dim").count() == page.locator(figure).count() - 1
    assert "lifted" in page.locator('#bench-table tr[data-line="hotswap_sgd"]').get_attribute("class")
    page.locator('#bench-legend [data-line="hotswap_sgd"]').blur()
    assert page.locator("#benchmark .dim").count() == 0


def test_arrow_keys_read_the_curves(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    choose(page, "paper_network")
    page.locator("#bench-chart svg").first.focus()
    for _ in range(page.locator(LINES).count() - 1):
        page.keyboard.press("ArrowDown")
    for _ in PERCENTS:
        page.keyboard.press("ArrowRight")
    told = plain(page.locator("#tip").inner_text()).split("\n")
    best = min(
        (one for one in section["workloads"][1]["lines"] if section["methods"][one["method"]]["ours"]),
        key=lambda one: one["median"][-1],
    )
    low, middle, high = (f"{100 * best[part][-1]:.2f} %" for part in ("low", "median", "high"))
    assert told[:2] == [best["label"], "after 100 % of the budget"]
    assert told[2:4] == [f"{middle}, median of 5 runs", f"{low} to {high}"]
    assert told[4] == f"{three_digits(best['ratio'])} times the tuned reference at its end"
    page.locator("#bench-profile svg").first.focus()
    assert "workloads" in page.locator("#tip").inner_text()


def test_a_phone_and_a_finger_are_enough(visit: Opened) -> None:
    page = visit("alone", width=390, height=844, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    button = page.locator('#bench-legend [data-line="adamw"]')
    button.tap()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(f'{LINES}[data-line="adamw"]').count() == 0
    page.locator("#bench-workloads label", has_text="paper network").tap()
    chart = page.locator("#bench-chart svg").first
    chart.scroll_into_view_if_needed()
    end = page.locator(f'{LINES}[data-line="hotswap_sgd"]').evaluate(
        """line => { const at = line.getPointAtLength(line.getTotalLength()), box = line.getScreenCTM();
                     return [box.a * at.x + box.e, box.d * at.y + box.f]; }"""
    )
    page.touchscreen.tap(*end)
    box = page.locator("#tip").bounding_box()
    assert "after 100" in page.locator("#tip").inner_text()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.locator("#bench-numbers summary").tap()
    assert page.locator("#bench-numbers table").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_missing_and_what_failed_is_told(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    assert page.locator("#bench-coverage").inner_text().startswith("Scores are over 2 of 8 workloads.")
    assert "whose numbers mean nothing" in page.locator("#bench-cautions").inner_text()
    folds = page.locator("#bench-more details")
    folds.nth(0).locator("summary").click()
    assert "dog (default), seeds 0, 1, 2, 3, 4: missing. It has missing." in folds.nth(0).inner_text()
    assert folds.nth(0).locator("li").count() == len(section["troubles"])
    unfinished = sum(result.state != "finished" for result in results().values())
    assert folds.nth(0).locator("summary").inner_text() == f"What did not finish: {unfinished} runs"
    folds.nth(1).locator("summary").click()
    assert METHODS["salsa"]().configuration(SECOND).source in folds.nth(1).inner_text()
    assert "torch 2.13" in page.locator("#bench-more").inner_text()
    folds.nth(2).locator("summary").click()
    assert folds.nth(2).locator("code").all_inner_texts() == ["hotswap bench run --out bench"]


def test_it_is_a_section_of_a_study(visit: Opened) -> None:
    page = visit("study")
    assert page.locator('nav a[href="#benchmark"]').is_visible()
    assert page.locator("#benchmark h2").inner_text() == "Against what people use today"
    assert page.locator(LINES).count() > 5
    assert page.locator("#runs .none").count() == 1  # the study itself is empty


def test_little_or_nothing_is_told_in_words(visit: Opened) -> None:
    page = visit("little", color_scheme="dark")
    assert page.locator(LINES).count() == 1
    assert "There are no scores yet" in page.locator("#bench-table").inner_text()
    assert "There are no scores yet" in page.locator("#bench-profile").inner_text()
    page = visit("nothing")
    assert page.locator("#benchmark").count() == 0
    assert "No run has ended yet" in page.locator("main").inner_text()


def test_no_drawing_has_a_number_that_is_none(visit: Opened, section: dict[str, Any]) -> None:
    page = visit("alone")
    page.get_by_role("button", name="All", exact=True).click()
    for workload in section["workloads"]:
        choose(page, workload["name"])
        drawn = page.evaluate("[...document.querySelectorAll('svg')].map(s => s.outerHTML).join('')")
        assert not re.search(r"NaN|Infinity|undefined|null", drawn)


def test_on_paper_names_and_numbers_stay(visit: Opened) -> None:
    page = visit("alone", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#bench-workloads").is_hidden()
    assert page.locator("#bench-choices button").first.is_hidden()
    assert page.locator("#bench-legend button").first.is_visible()
    assert page.locator("#bench-table thead button").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
