"""Hot swapping inside of frameworks.

`lightning`, `tensorboard` and `transformers` are imported by those who use them. `lightning_closures` and `grad_scaler`
have what the optimizer must know about Lightning and about torch's GradScaler, and are imported when it meets them.
"""
