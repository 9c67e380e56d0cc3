"""From a unit of a study to the ensemble that trains it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from hotswap.bandits import DiscountedUCB
from hotswap.data import Dataset
from hotswap.ensemble import Ensemble, HotSwapped, Mlp, Sgd, TrainingData, Update, adadelta
from hotswap.errors import SettingError
from hotswap.searches import Backtracking, FirstDecrease
from hotswap.studies.specification.families import AdaDeltaFamily, DucbFamily
from hotswap.studies.specification.plan import Unit
from hotswap.studies.specification.study import RunSpec, StudySpec

__all__ = ["Built", "build", "on_device"]


class Built(NamedTuple):
    """An ensemble and the runs in its rows, in order."""

    ensemble: Ensemble
    runs: tuple[RunSpec, ...]


def on_device(data: Dataset, study: StudySpec, device: torch.device, dtype: torch.dtype) -> TrainingData:
    """The study's part of a data set, all of it on the device."""
    count = len(data.train_images) if study.train_images is None else study.train_images
    if count > len(data.train_images):
        raise SettingError(
            f"The study {study.name!r} trains on {count} images, but {data.name} has {len(data.train_images)}; "
            "lower train_images or leave it out."
        )
    if max(study.batch_sizes) > count:
        raise SettingError(
            f"The study {study.name!r} has batch size {max(study.batch_sizes)}, but only {count} training images; "
            "leave that batch size out."
        )
    return TrainingData(
        torch.from_numpy(data.train_inputs()[:count]).to(device, dtype),
        torch.from_numpy(data.train_labels[:count]).to(device),
        torch.from_numpy(data.test_inputs()).to(device, dtype),
        torch.from_numpy(data.test_labels).to(device),
    )


def build(study: StudySpec, unit: Unit, data: TrainingData) -> Built:
    """The unit's ensemble before its first step."""
    runs = unit.runs
    if unit.algorithm == "sgd":
        runs = tuple(runs[place] for place in Sgd.order([_number(run.momentum) for run in runs]))
    network = study.network
    sizes = (data.train_x.shape[1], *network.hidden, int(data.train_y.max()) + 1)
    model = Mlp(sizes, network.unit, network.init)
    theta = model.initial([run.seed for run in runs]).to(data.train_x.device, data.train_x.dtype)
    update = _update(study, unit.algorithm, runs, model, theta)
    return Built(Ensemble(update, data, unit.batch_size, study.data_seed), runs)


def _update(study: StudySpec, algorithm: str, runs: tuple[RunSpec, ...], model: Mlp, theta: torch.Tensor) -> Update:
    family = study.family(algorithm)
    if isinstance(family, AdaDeltaFamily):
        return adadelta(model, theta, family.rho, family.eps, family.lr)
    if isinstance(family, DucbFamily):
        search = {"backtracking": Backtracking, "first_decrease": FirstDecrease}[family.search]
        bandit = DiscountedUCB(family.discount, family.exploration)
        return HotSwapped(model, theta, family.rates, bandit, search(headroom=family.headroom))
    return Sgd(
        model,
        theta,
        [_number(run.lr) for run in runs],
        [_number(run.lr_decay) for run in runs],
        [_number(run.momentum) for run in runs],
    )


def _number(value: float | None) -> float:
    assert value is not None  # a run of SGD has all three
    return value
