"""What the page shows of a study of variants, as plain JSON."""

from __future__ import annotations

import math
from typing import Any

from hotswap.report.extensions import GROUPS, Comparison, Prize, findings, group_of, prize
from hotswap.report.extensions.tables import method
from hotswap.report.extensions.variants import readable
from hotswap.report.page.numbers import number, numbers

__all__ = ["beyond_data"]


def beyond_data(comparison: Comparison) -> dict[str, Any]:
    """The verdict, the findings, the curves over cost, and objectives at equal cost."""
    verdict = prize(comparison)
    sentences = {finding.variant: finding.sentence for finding in findings(comparison)}
    used = {group_of(family, comparison.paper) for family in comparison.others}
    return {
        "verdict": verdict.sentences(),
        "winners": [standing.variant for standing in verdict.winners],
        "method": method(comparison),
        "moments": list(comparison.moments),
        "sizes": list(comparison.batch_sizes),
        "groups": [{"name": name, "title": title} for name, title in GROUPS.items() if name in used],
        "rivals": [
            {"name": rival.key, "label": rival.label, **_numbers_of(comparison, verdict, rival.key)}
            for rival in comparison.present
        ],
        "variants": [
            {
                "name": family.name,
                "label": readable(family.name),
                "group": group_of(family, comparison.paper),
                "finding": sentences[family.name],
                **_numbers_of(comparison, verdict, family.name),
            }
            for family in comparison.others
        ],
    }


def _numbers_of(comparison: Comparison, verdict: Prize, who: str) -> dict[str, Any]:
    """By batch size: the curve, and at each moment the objective, its ratio to the paper's and whether it is ahead."""
    there = comparison.curves.index.droplevel("epoch")
    curves = {}
    for size in comparison.batch_sizes:
        if (who, size) in there:
            rows = comparison.curves.loc[(who, size)].sort_values("cost")
            curves[str(size)] = {"cost": numbers(rows["cost"]), "nll": numbers(rows["train_nll"])}
            if who == "sgd tenth":
                curves[str(size)] |= {"low": numbers(rows["low"]), "high": numbers(rows["high"])}
    standing = verdict.of(who)
    leads = {(m.batch_size, m.cost): math.inf for m in standing.margins} if standing else {}
    for margin in standing.margins if standing else ():
        key = margin.batch_size, margin.cost
        leads[key] = math.nan if math.isnan(margin.lead) or math.isnan(leads[key]) else min(leads[key], margin.lead)
    at = {
        str(cost): {
            str(size): {
                "nll": number(comparison.value(who, size, cost)),
                "error": number(comparison.value(who, size, cost, "test_error")),
                "ratio": number(comparison.ratio(who, size, cost)),
                "diverged": math.isinf(comparison.value(who, size, cost)),
                "first": leads.get((size, cost), 0.0) > 1,
            }
            for size in comparison.batch_sizes
        }
        for cost in comparison.moments
    }
    return {"curves": curves, "at": at}
