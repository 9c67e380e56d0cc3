"""Train a tiny language model with Transformers' Trainer: `python examples/with_transformers.py`."""

from __future__ import annotations

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import hotswap
from hotswap.integrations.transformers import HotSwapTrainer

TEXT = "the bandit proposes a rate, the search protects the step, and every rate that was tried teaches the bandit. "


def samples(length: int = 32) -> list[dict[str, torch.Tensor]]:
    """Pieces of the text, a token for each character."""
    codes = torch.tensor([ord(letter) % 128 for letter in TEXT * 20])
    pieces = [codes[start : start + length] for start in range(0, len(codes) - length, length // 2)]
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def main() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=20,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            lr_scheduler_type="constant",  # the bandit chooses the rates
            logging_steps=20,
            save_strategy="no",
            report_to=[],
        )
        optimizer = hotswap.HotSwapSGD(model, momentum=0.5)
        HotSwapTrainer(model=model, args=arguments, train_dataset=samples(), optimizers=(optimizer, None)).train()
    print(optimizer.statistics())


if __name__ == "__main__":
    main()
