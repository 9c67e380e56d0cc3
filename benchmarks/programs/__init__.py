"""Programs that others wrote, changed to race: `python -m benchmarks.programs`.

The programs themselves are not here. Three kinds of diffs change them:

- `NAME.race.diff` has the lines that a user changes.
- `NAME.prodigy.diff` and `NAME.schedule_free.diff` put another optimizer in the place of the program's own.
- `NAME.data.diff` replaces what a machine without network cannot have: data sets, downloads, an environment. It also
  shortens runs, sets the seed, and prints a number where the program prints none. Its lines are not counted.
"""
