"""Races and hot swapping inside of frameworks.

`lightning`, `skorch`, `tensorboard` and `transformers` are imported by those who use them. `lightning_closures` and
`grad_scaler` have what `HotSwap` must know about Lightning and about torch's GradScaler, and are imported when it meets
them.
"""
