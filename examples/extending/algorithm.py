"""An algorithm for studies: Lion (Chen et al., 2023), at one or several rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotswap.studies import ALGORITHMS, Family, Look, RunSpec, one, several
from hotswap.studies.settings import POSITIVE, SHARE


@ALGORITHMS.register("lion")
@dataclass(frozen=True, kw_only=True)
class LionFamily(Family):
    """Lion: the sign of a running average of the gradient."""

    lr: tuple[float, ...] = several(POSITIVE, (1e-3,), help="rates", short="lr")  # a run each
    beta1: float = one(SHARE, 0.9, help="how much of the average enters a step")
    beta2: float = one(SHARE, 0.99, help="how much of the average is kept")

    label: ClassVar[str] = "Lion"
    look: ClassVar[Look] = Look("#E69F00", marker="diamond", dashes="dashed")
    measures: ClassVar[tuple[str, ...]] = ("mean_lr",)

    def update(self, model: Any, theta: Any, runs: Sequence[RunSpec]) -> Any:
        from hotswap.ensemble import Elementwise  # needs torch; reading a study does not

        rates = [run.settings["lr"] for run in runs]
        values = {"lr": rates, "beta1": self.beta1, "beta2": self.beta2}
        return Elementwise(model, theta, rule, slots=("mean",), values=values)


def rule(theta: Any, gradient: Any, slots: dict[str, Any], values: dict[str, Any], step: Any) -> None:
    """One step of all R runs, in place; θ is (R, P), a value that varies is (R, 1)."""
    mean = slots["mean"]  # like θ, zeros at first; saved and resumed with it
    direction = mean.mul(values["beta1"]).add_(gradient, alpha=1 - values["beta1"]).sign_()
    theta.sub_(values["lr"] * direction)
    mean.mul_(values["beta2"]).add_(gradient, alpha=1 - values["beta2"])
