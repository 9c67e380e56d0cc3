"""Lines of code per room: `python -m tools.size [FOLDER ...]`.

Counts the Python files of `src`, of `tests` and under `docs`. Blank lines, comments and docstrings are left out: a line
counts if a token of the program is on it. A room is a folder of the package `hotswap`, or of the tests.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of docstrings, and of the strings that describe a field below it."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """How many lines of a file have code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstring_lines(ast.parse(text)))


def rooms_of(folder: Path) -> dict[str, list[int]]:
    """The lines of code of each file, by room."""
    home = folder / "hotswap" if (folder / "hotswap").is_dir() else folder
    rooms: dict[str, list[int]] = defaultdict(list)
    for path in sorted(home.rglob("*.py")):
        inside = path.relative_to(home)
        rooms[inside.parts[0] if len(inside.parts) > 1 else "."].append(code_lines(path.read_text(encoding="utf-8")))
    return rooms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / name for name in ("src", "tests", "docs")])
    for folder in parser.parse_args().folders:
        rooms = rooms_of(folder)
        for room, files in rooms.items():
            print(f"{sum(files):7,} lines in {len(files):3} files  {folder.name}/{room}")
        every = [lines for files in rooms.values() for lines in files]
        print(f"{sum(every):7,} lines in {len(every):3} files  {folder.name}, together\n")


if __name__ == "__main__":
    main()
