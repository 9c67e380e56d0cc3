"""`python -m hotswap` is the command line."""

from hotswap.cli import main

main()
