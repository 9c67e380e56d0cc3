"""Measurements, run by hand: `python -m benchmarks.NAME`. Ratios are measured side by side in one run."""
