"""The documentation's part on races has the rules as they are in the code."""

from __future__ import annotations

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


def test_rules_of_races_are_those_of_the_code() -> None:
    done = run("-c", RULES)
    assert done.returncode == 0, done.stderr
