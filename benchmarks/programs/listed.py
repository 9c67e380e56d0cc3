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
    "tanelp/tiny-diffusion": "726b6bbbf2c9e3d23dff9eaea2fda10d0af6a78c",
    "nanditadoloi/PINN": "231c54a26e21897a757ede0e41c3b5b515979e8a",
    "Lightning-AI/pytorch-lightning": "7f0c3436cd3f6ad3753125672024fc415cbcb414",
    "skorch-dev/skorch": "5db0ddc962117a2c3a646910ecd2e70253ff8e87",
    "huggingface/transformers": "d56c55bf564ddb176759eb6ec199442682564916",
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
        Program(
            name="word_language_model",
            source="pytorch/examples",
            folder="word_language_model",
            script="main.py",
            arguments="--seed {seed} --epochs 3 --batch_size 20 --emsize 64 --nhid 128 --log-interval 1000",
            cpu="",
            cuda="--accel",
            number=r"test loss\s+(\S+)",
            measured="test loss per character",
            own="SGD at 20, clipped, less when validation stalls",
            loss="`step(loss)` in the place of the loop that updates weights by hand",
        ),
        Program(
            name="dcgan",
            source="pytorch/examples",
            folder="dcgan",
            script="main.py",
            arguments=(
                "--dataset mnist --dataroot . --manualSeed {seed} --niter 7 --batchSize 32 --ngf 8 --ndf 8 --workers 0"
            ),
            cpu="",
            cuda="--accel",
            number=r"distance (\S+)",
            measured="energy distance of samples and test images",
            own="Adam at 0.0002, betas 0.5 and 0.999",
            loss="`step(errG)` of the generator alone, with a judge of samples and `also=netD.parameters()`",
        ),
        Program(
            name="reinforce",
            source="pytorch/examples",
            folder="reinforcement_learning",
            script="reinforce.py",
            arguments="--seed {seed} --log-interval 400",
            cpu="",
            cuda="",
            number=r"Average reward: (\S+)",
            measured="running mean of returns",
            own="Adam at 0.01",
            loss="`step(-sum(policy.rewards))`: the return of the episode says more than the loss",
            higher=True,
        ),
        Program(
            name="diffusion",
            source="tanelp/tiny-diffusion",
            folder=".",
            script="ddpm.py",
            arguments="--num_epochs 12 --save_images_step 1000",
            cpu="",
            cuda="",
            number=r"held-out loss (\S+)",
            measured="loss on held-out points",
            own="AdamW at 0.001, clipped",
            loss="`step(loss)`",
        ),
        Program(
            name="pinn",
            source="nanditadoloi/PINN",
            folder=".",
            script="solve_PDE_NN.ipynb",
            arguments="",
            cpu="",
            cuda="",
            number=r"error (\S+)",
            measured="root mean square error of the solution",
            own="Adam at 0.001",
            loss="`step(loss)`",
        ),
        Program(
            name="lightning",
            source="Lightning-AI/pytorch-lightning",
            folder="examples/pytorch/basics",
            script="transformer.py",
            arguments="",
            cpu="",
            cuda="",
            number=r"test_loss\D+?([\d.e-]+)",
            measured="test loss, of a decoder that sees the target",
            own="SGD at 0.1, clipped",
            loss="`RaceCallback()`",
        ),
        Program(
            name="accelerate",
            source="skorch-dev/skorch",
            folder="examples/accelerate-multigpu",
            script="run-no-skorch.py",
            arguments="",
            cpu="",
            cuda="",
            number=r"accuracy (\S+)",
            measured="test accuracy",
            own="SGD at 0.01",
            loss="`step(loss)` of the prepared optimizer",
            higher=True,
        ),
        Program(
            name="transformers",
            source="huggingface/transformers",
            folder="examples/pytorch/image-pretraining",
            script="run_mae.py",
            arguments=(
                "--seed {seed} --do_train --do_eval --output_dir out --report_to none --remove_unused_columns False"
                " --per_device_train_batch_size 32 --num_train_epochs 2 --label_names pixel_values --disable_tqdm True"
                " --save_strategy no --lr_scheduler_type cosine --weight_decay 0.05"
                " --warmup_steps 20 --config_overrides image_size=28,patch_size=4,num_channels=1,hidden_size=64,"
                "num_hidden_layers=3,num_attention_heads=4,intermediate_size=128,decoder_hidden_size=48,"
                "decoder_num_hidden_layers=2,decoder_num_attention_heads=4,decoder_intermediate_size=96"
            ),
            cpu="--use_cpu",
            cuda="",
            number=r"eval_loss\s+=\s+(\S+)",
            measured="validation loss",
            own="AdamW at 0.000125, with warm-up and cosine",
            loss="`RaceTrainer` in the place of `Trainer`; the script's AdamW races beside the default lanes",
        ),
        Program(
            name="skorch",
            source="skorch-dev/skorch",
            folder="examples/benchmarks",
            script="mnist.py",
            arguments="--num_samples 3000",
            cpu="--device cpu",
            cuda="--device cuda",
            number=r"accuracy (\S+)",
            measured="test accuracy",
            own="Adadelta at 0.1",
            loss="`RaceClassifier` in the place of `NeuralNetClassifier`",
            higher=True,
        ),
    )
}
