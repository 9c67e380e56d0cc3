"""The specification of a study: its runs, its settings and their checks, its plan, and its form in a file."""
