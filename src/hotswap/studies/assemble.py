"""From a unit of a study to the ensemble that trains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from hotswap.data import Dataset
from hotswap.ensemble import Ensemble, TrainingData, Update
from hotswap.errors import SettingError
from hotswap.studies.specification.plan import Unit
from hotswap.studies.specification.study import RunSpec, StudySpec

__all__ = ["Assembled", "Held", "assemble", "check_size", "on_device"]


class Assembled(NamedTuple):
    """An ensemble and the runs in its rows, in order."""

    ensemble: Ensemble
    runs: tuple[RunSpec, ...]


@dataclass(frozen=True)
class Held:
    """The study's part of a data set, all of it on the device, and what a network has to fit."""

    tensors: TrainingData
    shape: tuple[int, int, int]
    """The shape of an image: channels, height, width."""
    classes: int


def check_size(data: Dataset, study: StudySpec) -> int:
    """How many training images the study uses, if the data set has as many as it needs; otherwise a SettingError."""
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
    return count


def on_device(data: Dataset, study: StudySpec, device: torch.device, dtype: torch.dtype) -> Held:
    """The study's part of a data set, in the form that its network takes."""
    count = check_size(data, study)
    flat = study.network.flat
    tensors = TrainingData(
        torch.from_numpy(data.train_inputs(flat=flat)[:count]).to(device, dtype),
        torch.from_numpy(data.train_labels[:count]).to(device),
        torch.from_numpy(data.test_inputs(flat=flat)).to(device, dtype),
        torch.from_numpy(data.test_labels).to(device),
    )
    return Held(tensors, data.shape, data.classes)


def assemble(study: StudySpec, unit: Unit, held: Held) -> Assembled:
    """The unit's ensemble before its first step."""
    families = [study.family(name) for name in unit.families]
    members = [[run for run in unit.runs if run.algorithm == family.name] for family in families]
    rows = [[own[place] for place in family.order(own)] for family, own in zip(families, members, strict=True)]
    runs = tuple(run for own in rows for run in own)
    model = study.network.model(held.shape, held.classes)
    images = held.tensors.train_x
    seeds = [run.seed for run in runs]
    theta = model.initial(seeds).to(images.device, images.dtype)
    first = families[0]
    if len(families) == 1:
        update = first.update(model, theta, runs)
    else:
        update = first.update_together(model, theta, list(zip(families, rows, strict=True)))
    if not isinstance(update, Update):
        raise SettingError(
            f"{type(first).__name__}.update() must return a hotswap.ensemble.Update, such as Elementwise(...), but it "
            f"returned a {type(update).__name__}."
        )
    return Assembled(Ensemble(update, held.tensors, unit.batch_size, study.data_seed), runs)
