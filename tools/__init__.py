"""Measurements of the source itself: its size, and the walks that a reader of it takes."""
