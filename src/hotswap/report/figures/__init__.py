"""Figures: what each shows (a pure function of a study's results) and how it is drawn."""

from hotswap.report.figures.choosing import draw_choices, draw_tuning
from hotswap.report.figures.paper import draw_figure_1, draw_figure_2
from hotswap.report.figures.style import save
from hotswap.report.figures.variants import draw_objective_and_cost, draw_ratios

__all__ = [
    "draw_choices",
    "draw_figure_1",
    "draw_figure_2",
    "draw_objective_and_cost",
    "draw_ratios",
    "draw_tuning",
    "save",
]
