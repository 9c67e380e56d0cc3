"""How a race says what happened: its table, and lines while it goes on."""

from __future__ import annotations

import re

import pytest
from torch.optim import SGD, AdamW

import hotswap
from tests.race.helpers import made, minibatches, perceptron, step


def raced(steps: int, **settings: object) -> hotswap.Race:
    model = made(perceptron)
    lanes = [AdamW(model.parameters(), lr=0.01), SGD(model.parameters(), lr=1e-5), SGD(model.parameters(), lr=1e-6)]
    race = hotswap.Race(model, lanes, total_steps=1000, share=0.2, **settings)  # type: ignore[arg-type]
    for batch in minibatches(steps):
        step(model, race, batch)
    return race


def test_the_table_has_lane_optimizer_rate_steps_loss_and_when_and_why_a_lane_was_dropped() -> None:
    race = raced(300)
    heading, *rows = str(race.standings()).splitlines()
    assert heading.split() == ["lane", "optimizer", "rate", "steps", "loss", "status"]
    number = r"[\d.]+"
    assert re.fullmatch(rf" +0  AdamW +0\.01 +200 +{number}  won", rows[0])
    assert re.fullmatch(rf" +1  SGD +1e-05 +80 +{number}  dropped at step 180: its loss .* of AdamW 0\.01", rows[1])
    assert re.fullmatch(rf" +2  SGD +1e-06 +20 +{number}  dropped at step 60: its loss .* of SGD 1e-05", rows[2])
    assert sum(one.steps for one in race.standings()) == 300
    assert race.winner is race.leader
    assert race.winner.name == race.standings()[0].name == "AdamW 0.01"


def test_a_notebook_shows_the_same_cells_as_a_table() -> None:
    table = raced(70).standings()
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + len(table)
    for row in table.cells():
        assert "".join(f"<td>{text}</td>" for text in row) in html


@pytest.mark.parametrize(("steps", "statuses"), [(0, ["races"] * 3), (70, ["leads", "races"])])
def test_lanes_lead_or_race_before_the_end(steps: int, statuses: list[str]) -> None:
    assert [one.why for one in raced(steps).standings()][: len(statuses)] == statuses


def test_lanes_that_never_raced_say_why() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, [AdamW(model.parameters(), lr=rate) for rate in (1e-2, 1e-3)], total_steps=100)
    first, second = race.standings()
    assert (first.why, second.why) == ("races", "the run is too short to race it")
    step(model, race, minibatches(1)[0])
    assert race.standings()[0].why == "trains alone"


def test_a_race_that_is_asked_to_prints_who_is_dropped_and_who_has_won(capsys: pytest.CaptureFixture[str]) -> None:
    raced(300, verbose=True)
    first, second, third = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step 60: SGD 1e-06 is dropped: its loss .* of SGD 1e-05", first)
    assert re.fullmatch(r"step 180: SGD 1e-05 is dropped: its loss .* of AdamW 0\.01", second)
    assert third == "step 180: the race is over, and AdamW 0.01 trains alone from here on"
    raced(300)
    assert not capsys.readouterr().out
