"""The documentation's part on the benchmark, before it was run and after."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.helpers import DOCS, ROOT, run

RUNS = ROOT / "results" / "tuning_free" / "runs.parquet"

BOTH_WAYS = """
import sys
from pathlib import Path
sys.path.insert(0, "docs/parts")
import tuning_free
from hotswap.bench.report.looks import three_digits
from hotswap.bench.scores import overall, scores
from tests.bench.helpers import by_id, made, whole

tuning_free.results = lambda: None
before = [part() for name, part in tuning_free.BLOCKS.items() if name.startswith("benchmark")]
assert before == [tuning_free.NOT_YET] * 4, before
assert tuning_free.score_of("adamw", "paper_network") == "–"
assert tuning_free.took() == tuning_free.passes_of("adamw") == tuning_free.mean_of("adamw", 30) == "–"
assert tuning_free.draw() == []

found = whole()
tuning_free.results = lambda: found
text, short, advice = tuning_free.came_of_it(), tuning_free.in_short(), tuning_free.wins_and_losses()
assert "Scores are over 2 of 8 workloads" in text and "Scores are over 2 of 8 workloads" in short
kept = [row for row in overall(scores(found)) if row.method in ("tuned", "adamw", "hotswap_sgd")]
assert all(tuning_free.label(row.method) in short and f"| {three_digits(row.mean)} |" in short for row in kept)
assert not any(name in short.partition("\\n\\n")[0] for name in ("DoG", "SaLSa"))  # the table; a sentence may
(one,) = [s for s in scores(found) if (s.method, s.workload) == ("adamw", "paper_network")]
assert tuning_free.score_of("adamw", "paper_network") == three_digits(one.ratio)
whole_table = text.partition("### Scores")[2].partition("### Each of ours")[0]
rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in whole_table.splitlines() if line.startswith("| ")}
for row in overall(scores(found)):
    cells = next(rows[name] for name in rows if name.strip("|* ") == tuning_free.label(row.method))
    means = [three_digits(value) for value in (row.mean, row.second, row.early[10], row.early[30], row.worst)]
    assert cells[:6] == [*means, str(len(row.misses))], cells
assert rows["| *SaLSa, second*"][:7] == ["", "", "", "", "", "", "–"]
assert "†" in " ".join(rows["| SaLSa"])
for part in ("- HotSwapSGD (the paper): geometric mean", "*Source: `results/tuning_free`. ", "| `paper_network` |"):
    assert part in text, part
numbers = tuning_free.one_by_one()
for part in ("dog (default), seeds 0, 1, 2, 3, 4: missing.", "torch 2.13", "- `hotswap bench run --out bench`",
             "## autoencoder"):
    assert part in numbers, part
told = tuning_free.against("hotswap_sgd", "adamw")
assert "on 2 workloads" in told.lower() and "; the first is ahead on 2 and behind on 0. Without `" in told, told
assert tuning_free.against("hotswap_sgd", "dog") == ""  # which was not trained
assert tuning_free.leads_are_unsure("dog") == ""
assert tuning_free.passes_of("adamw") == "1.00"  # 1,000 passes in 1,000 steps, on both
early = {row.method: three_digits(row.early[30]) for row in overall(scores(found))}
assert tuning_free.mean_of("adamw", 30) == early["adamw"]
told = tuning_free.training_of("d_adaptation", "paper_network", "adamw")  # the best of them, in the order of METHODS
assert "the lowest of all methods on 2 of 2 workloads, and on `paper_network` it is 0.0800, where AdamW's is " in told
assert "on none of 2 workloads" in tuning_free.training_of("adamw", "paper_network", "sgd")
close = {id: one for id, one in found.items() if one.run.method in ("tuned", "hotswap_sgd", "adamw")}
close |= by_id(*(made(name, "hotswap_sgd", seed, 0.05 * (1 + seed)) for name in ("autoencoder", "paper_network")
                 for seed in range(5)), *(made(name, "adamw", seed, 0.16) for name in ("autoencoder", "paper_network")
                 for seed in range(5)))
tuning_free.results = lambda: close
told = tuning_free.leads_are_unsure("adamw")
assert told.startswith("The lead of HotSwapSGD (the paper) over AdamW may be chance"), told
tuning_free.results = lambda: found
for part in ("- Of ours, on the 2 workloads", "- Of the other methods: ", "ahead of the best of the others on "):
    assert part in advice, part
drawn = tuning_free.draw(Path(sys.argv[1]))
shown = ["overview", "profile", "autoencoder", "paper_network"]
assert [path.name for path in drawn] == [f"benchmark-{name}.svg" for name in shown]
assert all(f"(pictures/{path.name})" in text + numbers for path in drawn)

found = by_id(made("paper_network", "sgd"))
assert "There are no scores yet" in tuning_free.came_of_it() and "### Scores" not in tuning_free.came_of_it()
assert "cannot be said" in tuning_free.wins_and_losses()
"""


def test_the_part_before_and_after(tmp_path: Path) -> None:
    done = run("-c", BOTH_WAYS, str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_the_page_says_whether_there_are_results() -> None:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("benchmark.md", "benchmark-numbers.md"))
    assert ("The benchmark has not been run yet" in text) == (not RUNS.exists())
    pictures = {path.name for path in (DOCS / "pictures").glob("benchmark-*")}
    assert set(re.findall(r"\(pictures/(benchmark-[^)]*)\)", text)) == pictures
