"""Every family still measures what it measured before (`tests.goldens.study`).

First weights are drawn in float32, and other processors round them otherwise: decisions are the same there, and numbers
agree to four digits.
"""

from __future__ import annotations

import json

import pytest

from hotswap.studies import StudySpec
from tests.goldens.study import FILE, STUDIES, measured


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_family_measures_what_it_measured_before(study: StudySpec) -> None:
    goldens = json.loads(FILE.read_text(encoding="utf-8"))
    expected = {name.partition("/")[2]: rows for name, rows in goldens.items() if name.startswith(f"{study.name}/")}
    found = measured(study)
    assert found.keys() == expected.keys()
    for run, columns in expected.items():
        for name, values in columns.items():
            assert found[run][name] == pytest.approx(values, rel=1e-4, abs=1e-12, nan_ok=True), f"{run}: {name}"
