"""The command `hotswap`, and `python -m hotswap`."""

from __future__ import annotations

import sys

__all__ = ["main"]

NEEDED = ("typer", "rich", "pydantic")


def main() -> None:
    """Run the command line, or say how to install it: it is an extra."""
    try:
        from hotswap.cli import main as run  # noqa: PLC0415  # it may not be installed
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in NEEDED:
            raise
        sys.exit(
            f"Error: The command line needs {package}, which is not installed; install hotswap with its extra, as "
            "in pip install 'hotswap[cli]', or from a checkout pip install '.[cli]'."
        )
    run()


if __name__ == "__main__":
    main()
