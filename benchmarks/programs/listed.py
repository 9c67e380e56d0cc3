"""The programs, and how each is run."""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """A program that others wrote."""

    name: str
    source: str
    """The repository on GitHub."""
    folder: str
    """The program's folder in it."""
    script: str
    """A Python file, or a notebook, whose code is run from its first cell to its last."""
    arguments: str
    """Of the program; `{seed}` stands for the seed. Programs without such an argument read the variable `SEED`."""
    cpu: str
    """Further arguments on a CPU."""
    cuda: str
    """Further arguments on a GPU."""
    number: str
    """A pattern whose last match in the program's output has the number."""
    measured: str
    """What the number is, in words."""
    own: str
    """The program's own optimizer."""
    loss: str
    """How the loss reaches the race."""
    higher: bool = False
    """Whether a higher number is better."""


COMMITS = {
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
}
"""The commits that the diffs fit."""

PROGRAMS = {
    program.name: program
    for program in (
        Program(
            name="mnist",
            source="pytorch/examples",
            folder="mnist",
            script="main.py",
            arguments="--seed {seed} --epochs 5 --batch-size 32 --log-interval 1000",
            cpu="--no-accel",
            cuda="",
            number=r"Test set: Average loss: (\S+),",
            measured="test loss",
            own="Adadelta at 1.0, less in each epoch",
            loss="`step(loss)`",
        ),
        Program(
            name="vae",
            source="pytorch/examples",
            folder="vae",
            script="main.py",
            arguments="--seed {seed} --epochs 6 --log-interval 1000",
            cpu="--no-accel",
            cuda="",
            number=r"Test set loss: (\S+)",
            measured="test loss per image",
            own="Adam at 0.001",
            loss="`step(loss / len(data))`, because the program adds up the losses of a minibatch",
        ),
        Program(
            name="nanogpt",
            source="karpathy/nanoGPT",
            folder=".",
            script="train.py",
            arguments=(
                "config/train_shakespeare_char.py --compile=False --eval_iters=20 --eval_interval=400"
                " --log_interval=400 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --dropout=0.0"
                " --max_iters=400 --lr_decay_iters=400"
            ),
            cpu="--device=cpu",
            cuda="",
            number=r"val loss (\S+)",
            measured="validation loss per character",
            own="AdamW at 0.001, with warm-up and cosine",
            loss="`scaler.step(optimizer, loss)`; the loop that writes a rate into the groups goes",
        ),
    )
}
