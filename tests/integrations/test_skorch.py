"""skorch, alone and in scikit-learn's pipelines, with the real packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Checkpoint
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.integrations.skorch import RaceClassifier, RaceRegressor
from tests.integrations.racing import BATCH, EPOCHS, STEPS, check_equal, check_winner, data, lanes, network, weights

X, Y = (tensor.numpy() for tensor in data().tensors)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def classifier(**settings: Any) -> RaceClassifier:
    torch.manual_seed(2)
    settings = {"max_epochs": EPOCHS, "optimizer__optimizers": lanes, "train_split": None, **settings}
    return RaceClassifier(Net, criterion=nn.CrossEntropyLoss, batch_size=BATCH, verbose=0, **settings)


def test_it_races_and_resumes(tmp_path: Path) -> None:
    whole = classifier().fit(X, Y)
    check_winner(whole.optimizer_)
    assert whole.optimizer_.total_steps == STEPS
    part = classifier()
    part.partial_fit(X, Y, epochs=2)
    files = {"f_params": tmp_path / "p.pt", "f_optimizer": tmp_path / "o.pt"}
    part.save_params(**files)
    state = torch.get_rng_state()
    rest = classifier().initialize()
    rest.load_params(**files)
    torch.set_rng_state(state)
    rest.partial_fit(X, Y, epochs=EPOCHS - 2)
    check_equal(weights(rest.module_), weights(whole.module_))


def test_a_partial_fit_after_the_end_trains_on() -> None:
    net = classifier().fit(X, Y)
    won, before = net.optimizer_.winner, weights(net.module_)
    net.partial_fit(X, Y)
    assert net.optimizer_.winner is won
    assert net.optimizer_.total_steps == 2 * STEPS
    assert any(not torch.equal(before[name], value) for name, value in weights(net.module_).items())


def test_it_validates_and_predicts_with_what_the_race_hands_over() -> None:
    net = classifier(train_split=lambda dataset, *_: (dataset, dataset), max_epochs=4)
    net.partial_fit(X, Y, epochs=3)
    loss = cross_entropy(net.forward(X), torch.from_numpy(Y))
    assert net.history[-1, "valid_loss"] == pytest.approx(float(loss), rel=1e-5)
    net.optimizer_.train()
    net.module_.eval()
    raw = cross_entropy(net.module_(torch.from_numpy(X)).detach(), torch.from_numpy(Y))
    assert abs(float(raw) - float(loss)) > 1e-4


def test_the_best_checkpoint_has_the_weights_that_were_validated(tmp_path: Path) -> None:
    best = Checkpoint(monitor="valid_loss_best", dirname=tmp_path, load_best=True)
    net = classifier(train_split=lambda dataset, *_: (dataset, dataset), callbacks=[best]).fit(X, Y)
    loss = cross_entropy(net.forward(X), torch.from_numpy(Y))
    assert min(net.history[:, "valid_loss"]) == pytest.approx(float(loss), rel=1e-5)


def test_in_a_pipeline_and_a_search() -> None:
    """Without a word about optimizers, and with an optimizer that races beside the default lanes."""
    kept = {"optimizer__optimizers": None, "max_epochs": 6}
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(**kept)), {"raceclassifier__batch_size": [8, 16]}, cv=2
    )
    search.fit(X * 100, Y)
    assert search.best_score_ > 0.7
    pipeline = make_pipeline(StandardScaler(), RaceRegressor(Net, optimizer=torch.optim.SGD, lr=0.05))
    pipeline.set_params(raceregressor__verbose=0, raceregressor__max_epochs=10, raceregressor__batch_size=BATCH)
    pipeline.fit(X, np.eye(3, dtype=np.float32)[Y])
    assert pipeline.score(X, np.eye(3, dtype=np.float32)[Y]) > 0.3
    names = [lane.name for lane in pipeline[-1].optimizer_.standings()]
    assert "SGD 0.05" in names
    assert len(names) == 1 + len(hotswap.lanes(network()))
