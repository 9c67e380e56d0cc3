"""Studies that were stored keep their fingerprints: results belong together by them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hotswap import Backtracking, DiscountedUCB
from hotswap.studies import (
    STUDIES,
    AdamFamily,
    ConvolutionalSpec,
    HotSwapFamily,
    StudySpec,
    VsgdFamily,
)

RESULTS = Path(__file__).parents[3] / "results"
STORED = sorted(RESULTS.glob("*/*provenance.json"))

KNOWN = {
    "paper": ("0845392ce6316b44", "a605d78796736080"),
    "extensions": ("e33524d76a682e8b", "8d85c4305e1e4d34"),
    "confirmation": ("b6ae757f2567e21d", "81fc1ee059f3886f"),
    "first_decrease": ("04d7b08006d72b1b", "444267b4a3cace94"),
    "cited": ("cc4add446ee9f195", "5a2bd316ec94b555"),
}
"""Of each study that comes with hotswap, its fingerprint and a digest over the ids of its runs."""

MIXED = StudySpec(
    name="mixed",
    dataset="digits",
    train_images=None,
    network=ConvolutionalSpec(channels=(4, 8), batch_norm=False),
    families=(
        HotSwapFamily(name="bold", count=5, bandit=DiscountedUCB(discount=0.9), search=Backtracking(headroom=2)),
        HotSwapFamily(base="nesterov", momentum=(0.9,), search_every=5, next_weight=0.5),
        AdamFamily(lr=(1, 0.01), weight_decay=(-0.0,)),
        VsgdFamily(slow=3),
    ),
    batch_sizes=(16,),
    seeds=(0, 2**63 - 1),
    epochs=3,
    data_seed=7,
)


def ids(study: StudySpec) -> str:
    return hashlib.sha256("\n".join(run.id for run in study.runs()).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", KNOWN)
def test_studies_that_come_with_hotswap(name: str) -> None:
    assert (STUDIES[name].fingerprint(), ids(STUDIES[name])) == KNOWN[name]


@pytest.mark.parametrize("file", STORED, ids=lambda file: str(file.relative_to(RESULTS)))
def test_studies_beside_results(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    study = StudySpec.from_dict(document["study"])
    assert study.fingerprint() == document["fingerprint"]
    assert {StudySpec.from_dict(spec).fingerprint() for spec in document["specs"]} == {document["fingerprint"]}
    assert StudySpec.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_a_study_of_every_kind_of_setting() -> None:
    assert (MIXED.fingerprint(), ids(MIXED)) == ("1fcda578fce0b73b", "a032b21512d85bcf")
