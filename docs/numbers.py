"""Fill the generated blocks of README.md and docs/*.md.

    python docs/numbers.py            rewrite them
    python docs/numbers.py --check    change nothing; exit with 1 and say which blocks have drifted

A block lies between two comments. On lines of their own they hold lines; inside a line, but not at its beginning, they
hold a few words:

    <!-- numbers: claims -->
    ...
    <!-- /numbers -->

    The paper's study has <!-- numbers: runs -->1,110<!-- /numbers --> runs.

Measured numbers come from `results/`, through the functions that the report uses, and the pictures of the studies and
of the benchmark are drawn along with them. The list of commands comes from the command line itself, the notebook's page
from the notebook, the rules of races from the code, and examples from their files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).parent / "parts")  # and not docs: the standard library has a module `numbers` too

from benchmarked import BLOCKS as BENCHMARKED  # noqa: E402
from beyond import BLOCKS as BEYOND  # noqa: E402
from beyond import figures as figures_of_variants  # noqa: E402
from extracts import commands, notebook, source  # noqa: E402
from measured import BLOCKS as MEASURED  # noqa: E402
from measured import figures as figures_of_paper  # noqa: E402
from precision import BLOCKS as PRECISION  # noqa: E402
from programs import BLOCKS as PROGRAMS  # noqa: E402
from races import BLOCKS as RACES  # noqa: E402
from scale import BLOCKS as SCALE  # noqa: E402
from tuning_free import BLOCKS as TUNING_FREE  # noqa: E402
from tuning_free import figures as figures_of_benchmark  # noqa: E402
from when import BLOCKS as WHEN  # noqa: E402

from hotswap.report.figures import save  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- numbers: (?P<name>[^>]*?) -->)(?P<text>.*?)(<!-- /numbers -->)", re.DOTALL)
BLOCKS: dict[str, Callable[[], str]] = {
    **MEASURED,
    **BENCHMARKED,
    **PRECISION,
    **PROGRAMS,
    **RACES,
    **BEYOND,
    **SCALE,
    **TUNING_FREE,
    **WHEN,
    "commands": commands,
    "notebook": partial(notebook, ROOT / "examples" / "start.ipynb"),
    **{f"example {path.stem}": partial(source, path) for path in (ROOT / "examples" / "extending").glob("*.py")},
}


def filled(text: str) -> tuple[str, list[str]]:
    """The text with every block as it should be, and the names of those that were not.

    Raises:
        SystemExit: A block has a name that nobody knows.
    """
    drifted: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise SystemExit(f"There is no block {name!r}; there are {', '.join(BLOCKS)}.")
        text = BLOCKS[name]()
        new = f"\n\n{text.strip()}\n\n" if match["text"].startswith("\n") else text.strip()
        if new != match["text"]:
            drifted.append(name)
        return f"{match[1]}{new}{match[4]}"

    return BLOCK.sub(fill, text), drifted


def files() -> list[Path]:
    """Where blocks may be; the notes keep the numbers of their day."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def draw() -> None:
    """Draw the pictures that results are behind."""
    found = {**figures_of_paper(), **figures_of_variants(), **figures_of_benchmark()}
    for name, figure in found.items():
        if figure is not None:
            save(figure, ROOT / "docs" / "pictures" / name)
            print(f"drawn: docs/pictures/{name}")


def main(arguments: Sequence[str]) -> int:
    """Rewrite, or check."""
    if set(arguments) - {"--check"}:
        print(__doc__)
        return 2
    code = 0
    for path in files():
        before = path.read_text(encoding="utf-8")
        after, drifted = filled(before)
        if after == before:
            continue
        where = f"{path.relative_to(ROOT)}: {', '.join(drifted)}"
        if "--check" in arguments:
            print(f"drifted: {where}; run python docs/numbers.py")
            code = 1
        else:
            path.write_text(after, encoding="utf-8")
            print(f"rewritten: {where}")
    if "--check" not in arguments:
        draw()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
