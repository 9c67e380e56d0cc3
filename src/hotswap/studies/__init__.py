"""Studies: which runs there are, which of them share an ensemble, and the paper's own."""

from hotswap.studies.paper import PAPER
from hotswap.studies.specification.families import (
    ALGORITHMS,
    AdaDeltaFamily,
    Algorithm,
    DucbFamily,
    Family,
    NetworkSpec,
    SgdFamily,
)
from hotswap.studies.specification.plan import Unit, plan
from hotswap.studies.specification.study import RunSpec, StudySpec
from hotswap.studies.specification.toml import EXAMPLE, load_study

__all__ = [
    "ALGORITHMS",
    "EXAMPLE",
    "PAPER",
    "AdaDeltaFamily",
    "Algorithm",
    "DucbFamily",
    "Family",
    "NetworkSpec",
    "RunSpec",
    "SgdFamily",
    "StudySpec",
    "Unit",
    "load_study",
    "plan",
]
