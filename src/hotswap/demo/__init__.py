"""A few minutes on a laptop: the paper's network with and without a learning rate to choose."""

from hotswap.demo.training import Contender, DemoSettings, Outcome, contenders, load_data, steps_per_epoch, train

__all__ = ["Contender", "DemoSettings", "Outcome", "contenders", "load_data", "steps_per_epoch", "train"]
