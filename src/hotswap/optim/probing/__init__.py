"""Trials that leave no trace: everything that a search needs to evaluate a closure at other parameters.

`probe` is the interface. Behind it: `closures` (how a closure is evaluated), `gradients` (loss scale and clipping),
`moves` (candidate updates and the exact way back), `snapshot` with `modules` and `buffers` (random numbers and module
buffers), `stale_gradients` (gradients that were there before), and `agreement` (over processes).
"""

from hotswap.optim.probing.probe import ClosureChecks, Probe, StartPoint

__all__ = ["ClosureChecks", "Probe", "StartPoint"]
