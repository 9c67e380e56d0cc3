"""Beyond the paper: variants of hot swapping beside the paper's algorithm, AdaDelta and SGD, at equal cost."""

from hotswap.report.extensions.comparison import RIVALS, Comparison, compare, comparison_of, shipped_results
from hotswap.report.extensions.findings import Finding, findings
from hotswap.report.extensions.variants import GROUPS, changes, group_of, variants_of
from hotswap.report.extensions.verdict import Prize, confirmed, prize

__all__ = [
    "GROUPS",
    "RIVALS",
    "Comparison",
    "Finding",
    "Prize",
    "changes",
    "compare",
    "comparison_of",
    "confirmed",
    "findings",
    "group_of",
    "prize",
    "shipped_results",
    "variants_of",
]
