"""What a study is: its runs, its settings and their checks, its plan; and how it is written in a file."""
