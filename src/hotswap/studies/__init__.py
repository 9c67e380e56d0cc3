"""Studies: which runs there are, which of them share an ensemble, and the paper's own.

A study is made of parts that are chosen by name, each a registry that a file of one's own can add to: `ALGORITHMS`,
`NETWORKS`, and `hotswap.data.DATASETS`.
"""

from hotswap.studies.algorithms import (
    ALGORITHMS,
    AdaDeltaFamily,
    AdamFamily,
    DucbFamily,
    Family,
    HotSwapFamily,
    Look,
    SgdFamily,
    VsgdFamily,
)
from hotswap.studies.extensions import CITED, CONFIRMATION, EXTENSIONS, STUDIES
from hotswap.studies.networks import NETWORKS, ConvolutionalSpec, Network, NetworkSpec
from hotswap.studies.paper import PAPER
from hotswap.studies.settings import one, several
from hotswap.studies.study import RunSpec, StudySpec, Unit, plan
from hotswap.studies.toml import EXAMPLE, load_study

Algorithm = str
"""The name of an algorithm; one of `ALGORITHMS`, or of a family that a study has given a name."""

__all__ = [
    "ALGORITHMS",
    "CITED",
    "CONFIRMATION",
    "EXAMPLE",
    "EXTENSIONS",
    "NETWORKS",
    "PAPER",
    "STUDIES",
    "AdaDeltaFamily",
    "AdamFamily",
    "Algorithm",
    "ConvolutionalSpec",
    "DucbFamily",
    "Family",
    "HotSwapFamily",
    "Look",
    "Network",
    "NetworkSpec",
    "RunSpec",
    "SgdFamily",
    "StudySpec",
    "Unit",
    "VsgdFamily",
    "load_study",
    "one",
    "plan",
    "several",
]
