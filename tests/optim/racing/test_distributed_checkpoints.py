"""Distributed checkpoints of races that are over, which are loaded into the tensors of a new race."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.optim.racing.helpers import contents, minibatches, network, same, train
from tests.optim.racing.test_bases import LANES, adamw, race

ONE = [(adamw, (0.1, 0.03, 0.01, 0.001))]


def go_on(name: str, folder: Path) -> None:
    """A race that is saved and loaded after 30 of its steps is as one that is not."""
    lanes = ONE if name == "one" else LANES[name]
    model, again, batches = network(), network(seed=5), list(minibatches())
    first, second = race(model, lanes), race(again, lanes)
    train(first, model, batches[:30])
    saved = dict(zip(("model", "race"), get_state_dict(model, first), strict=True))
    dcp.save(saved, checkpoint_id=folder)
    found = dict(zip(("model", "race"), get_state_dict(again, second), strict=True))
    dcp.load(found, checkpoint_id=folder)
    set_state_dict(again, second, model_state_dict=found["model"], optim_state_dict=found["race"])
    assert train(first, model, batches[30:]) == train(second, again, batches[30:])
    assert same(contents(model), contents(again))
    assert first.winner == second.winner


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("name", ["one", "AdamW wins"])
def test_they_go_on_exactly(name: str, tmp_path: Path) -> None:
    go_on(name, tmp_path)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_they_know_the_first_base_alone(tmp_path: Path) -> None:
    """So torch refuses what another base has won."""
    with pytest.raises(dcp.api.CheckpointException, match="Missing key"):
        go_on("SGD wins", tmp_path)
