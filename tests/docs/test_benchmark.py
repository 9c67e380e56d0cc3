"""The documentation's numbers and pictures on the benchmark are those of the results."""

from __future__ import annotations

import re

from tests.docs.helpers import DOCS, run

NUMBERS = """
import sys
sys.path.insert(0, "docs/parts")
import tuning_free
from hotswap.bench.report.methods import three_digits
from hotswap.bench.scores import overall, scores

found = tuning_free.results()
every = scores(found)
(one,) = [s for s in every if (s.method, s.workload) == ("adamw", "paper_network")]
assert tuning_free.score_of("adamw", "paper_network") == three_digits(one.ratio)
nobody = {tuning_free.score_of("adamw", "nowhere"), tuning_free.mean_of("nobody"), tuning_free.passes_of("nobody")}
assert nobody == {"–"}, nobody
assert tuning_free.passes_of("adamw") == "1.00"
for row in overall(every):
    assert tuning_free.mean_of(row.method, 30) == three_digits(row.early[30])
    assert tuning_free.mean_of(row.method) == three_digits(row.mean)
    assert tuning_free.worst_of(row.method) == three_digits(row.worst)
runs = [r.end for r in found.values() if (r.run.workload, r.run.method) == ("paper_network", "adamw")]
middle = sorted(end.train for end in runs)[len(runs) // 2]
assert tuning_free.training_of("adamw", "paper_network") == three_digits(middle)
"""


def test_numbers_in_sentences_are_those_of_the_results() -> None:
    done = run("-c", NUMBERS)
    assert done.returncode == 0, done.stderr


def test_every_picture_is_shown() -> None:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("benchmark.md", "benchmark-numbers.md"))
    pictures = {path.name for path in (DOCS / "pictures").glob("benchmark-*")}
    assert set(re.findall(r"\(pictures/(benchmark-[^)]*)\)", text)) == pictures
    assert len(pictures) > 2
