"""skorch, also in scikit-learn's pipelines and searches.

    net = RaceClassifier(Net, max_epochs=20)

Without `optimizer=` the default lanes race; an optimizer of yours, with its `lr`, races beside them. Where no optimizer
is given, `optimizer__judge=...` and the like are settings of the race, and `optimizer__optimizers` may be a function of
the module that makes the lanes. For nets of other classes: `class Mine(Racing, YourNet)`.
"""

from __future__ import annotations

from typing import Any

from skorch import NeuralNetClassifier, NeuralNetRegressor

from hotswap.race import Race

__all__ = ["RaceClassifier", "RaceRegressor", "Racing"]


class Racing:
    """Mixed into a skorch net: its optimizer races, and it validates and predicts with what the race hands over."""

    def __init__(self, *args: Any, optimizer: Any = Race, **kwargs: Any) -> None:
        super().__init__(*args, optimizer=optimizer, **kwargs)  # type: ignore[call-arg]

    def initialize_optimizer(self, *_: Any, **__: Any) -> Any:
        """Make the race; its length is known when training begins."""
        net: Any = self
        args, settings = net.get_params_for_optimizer("optimizer", net.get_all_learnable_params())
        if net.optimizer is Race:
            settings.pop("lr", None)
            if callable(make := settings.get("optimizers")):
                settings["optimizers"] = make(net.module_)
            net.optimizer_ = Race(net.module_, **settings)
        else:
            net.optimizer_ = Race(net.module_, net.optimizer(*args, **settings))
        return self

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any) -> None:
        """Tell the race how many steps there will be, or how many more."""
        super().on_epoch_begin(net, dataset_train=dataset_train, dataset_valid=dataset_valid, **kwargs)  # type: ignore[misc]
        race, steps = net.optimizer_, net.max_epochs * len(net.get_iterator(dataset_train, training=True))
        if race.total_steps is None and not race.steps:
            race.total_steps = steps
        elif race.steps == race.total_steps:  # partial_fit trains on
            race.finish(steps)

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Train with the weights of the lane in the model, and validate with what the race would hand over."""
        super().on_batch_begin(net, batch=batch, training=training, **kwargs)  # type: ignore[misc]
        (net.optimizer_.train if training else net.optimizer_.eval)()

    def on_train_end(self, net: Any, *args: Any, **kwargs: Any) -> None:
        """Leave what the race hands over in the module."""
        net.optimizer_.eval()
        super().on_train_end(net, *args, **kwargs)  # type: ignore[misc]


class RaceClassifier(Racing, NeuralNetClassifier):  # type: ignore[misc]
    """A NeuralNetClassifier whose optimizers race."""


class RaceRegressor(Racing, NeuralNetRegressor):  # type: ignore[misc]
    """A NeuralNetRegressor whose optimizers race."""
