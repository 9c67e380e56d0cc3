"""What a checkpoint must be: all of it is checked before anything of it is loaded.

Nothing is looked at that is not about to be used, and nothing is changed. What is wrong is one sentence, a
`hotswap.CheckpointError`.

    values.py       numbers, lists, tables and tensors
    entry.py        what hot swapping adds to the base optimizer's state
    base.py         the base's own state and parameter groups
    trying.py       whether torch's optimizers can step with such a state, tried on tiny tensors
"""
