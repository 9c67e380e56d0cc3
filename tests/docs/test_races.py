"""The documentation's parts on races: rules as they are in the code, trials before they were run and after."""

from __future__ import annotations

from pathlib import Path

from tests.docs.helpers import run

RULES = """
import sys
sys.path.insert(0, "docs/parts")
import races
from hotswap.race.judging import plan
from hotswap.race.lane import ADAMW_RATES, MUON_RATES, SGD_RATES

rows = {line.strip("| ").split(" | ")[0]: line.strip("| ").split(" | ")[1:] for line in races.rounds().splitlines()}
assert rows["300"][0] == "the first lane alone", rows["300"]
first, beside, judged = rows["10,000"]
assert first.startswith(f"{len(MUON_RATES)} lanes, after {plan(('muon',) * 3, 10_000, 0.15).rounds[0].until}: "), first
assert beside.startswith(f"{len(MUON_RATES) + 1} lanes, after ") and " and " in beside
assert all(0 < float(cell.rpartition(": ")[2].strip("%")) <= 15 for cell in rows["10,000"])
assert rows["unknown"][0].endswith(" steps")
two, three = races.shortest(2), races.shortest(3)
assert plan(("muon",) * 3, int(two), 0.15).lanes == 2 and plan(("muon",) * 3, int(two) - 1, 0.15).lanes == 1
assert int(two) < int(three)
muon, adamw, neither = races.default_lanes().splitlines()[2:]
listed = lambda rates: ", ".join(f"{rate:g}" for rate in rates)
assert f"Muon at {listed(MUON_RATES)} |" in muon and f"AdamW at {listed(ADAMW_RATES)} |" in adamw
assert f"AdamW at {listed(ADAMW_RATES)}; SGD at {listed(SGD_RATES)} |" in neither
"""

TRIALS = """
import json, sys
from pathlib import Path
sys.path.insert(0, "docs/parts")
import races

races.TRIALS = Path(sys.argv[1]) / "trials.json"
assert races.trials() == "The trials have not been run yet, so there is nothing to tell."
races.TRIALS.write_text(json.dumps({
    "origin": {"device": "NVIDIA H200", "torch": "2.11"},
    "choosing": ["autoencoder"],
    "confirming": ["paper_network", "cifar_resnet"],
    "rows": [
        {"trial": "race@default", "problems": {"large": 6, "small": 9}, "means": {"large": 0.914, "small": 0.8},
         "worst": {"large": 1.0449, "small": 1.3}},
        {"trial": "fixed@muon:6e-3", "problems": {"large": 2}, "means": {"large": 1.2}, "worst": {"large": 7.3}},
    ],
}))
told = races.trials()
assert "| trial | large, mean / worst (of) | small, mean / worst (of) |" in told
assert "| `race@default` | 0.91 / 1.04 (6) | 0.80 / 1.30 (9) |" in told, told
assert "| `fixed@muon:6e-3` | 1.20 / 7.30 (2) | – |" in told
assert "choosing: `autoencoder`" in told and "confirming: `paper_network`, `cifar_resnet`" in told
assert told.endswith("*Source: `results/races/trials.json`. device NVIDIA H200, torch 2.11.*")
"""

ADVICE = """
import sys
sys.path.insert(0, "docs/parts")
import when

def told(measured):
    when.mean_of = lambda method, percent=100: "0.93" if method in measured else "–"
    return when.when("docs/")

without = told({"prodigy", "adamw"})
assert "AdamW at its default rate" in without
whole = told({"race", "race_open", "muon", "prodigy", "adamw"})
for part in ("a [race](docs/races.md)", "a race without `total_steps`", "`hotswap.Muon(model)`", "- **A race** trains"):
    assert part in whole and part not in without, part
"""


def test_rules_of_races_are_those_of_the_code() -> None:
    done = run("-c", RULES)
    assert done.returncode == 0, done.stderr


def test_trials_before_they_were_run_and_after(tmp_path: Path) -> None:
    done = run("-c", TRIALS, str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_methods_that_were_not_measured_have_no_row() -> None:
    done = run("-c", ADVICE)
    assert done.returncode == 0, done.stderr
