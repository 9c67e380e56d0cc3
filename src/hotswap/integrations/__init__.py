"""Hot swapping inside other people's loops: one file a framework, imported by who uses it."""
