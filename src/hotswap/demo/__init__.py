"""A few minutes on a laptop: the paper's network, trained by whom nobody gives a learning rate, at the same cost."""
