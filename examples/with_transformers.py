"""A race in Transformers' Trainer, on a tiny language model: `python examples/with_transformers.py`."""

from __future__ import annotations

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from hotswap.integrations.transformers import RaceTrainer

TEXT = "several optimizers take turns in one training run, the worse ones are dropped, and the best one goes on. "


def samples(length: int = 32) -> list[dict[str, torch.Tensor]]:
    """Pieces of the text, a token for each character."""
    codes = torch.tensor([ord(letter) % 128 for letter in TEXT * 20])
    pieces = [codes[start : start + length] for start in range(0, len(codes) - length, length // 2)]
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=40,
        per_device_train_batch_size=16,
        learning_rate=1e-3,  # of the optimizer that races beside the default lanes
        logging_steps=20,
        save_strategy="no",
        report_to=[],
    )
    trainer = RaceTrainer(model=model, args=arguments, train_dataset=samples())
    trainer.train()
print(trainer.race.standings())
