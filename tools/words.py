"""Words of the documentation, page by page: `python -m tools.words`.

A word has a letter or a digit. The columns have all words of a page, and its prose: words outside of code, tables and
blocks that `docs/numbers.py` fills. Notes are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
NO_PROSE = re.compile(
    r"^<!-- numbers: [^>]* -->$.*?^<!-- /numbers -->$|^```.*?^```$|^\|.*?$|<!-- /?numbers[^>]*-->",
    re.MULTILINE | re.DOTALL,
)


def words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def main() -> None:
    together = [0, 0]
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        counts = [words(text), words(NO_PROSE.sub(" ", text))]
        together = [a + b for a, b in zip(together, counts, strict=True)]
        print(f"{counts[0]:7,} words, {counts[1]:6,} of prose  {path.name}")
    print(f"{together[0]:7,} words, {together[1]:6,} of prose  together")


if __name__ == "__main__":
    main()
