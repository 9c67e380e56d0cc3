"""Figures: what each shows (a pure function of a study's results) and how it is drawn, one to a file."""

from hotswap.report.figures.choices import draw_choices
from hotswap.report.figures.objective_and_cost import draw_objective_and_cost
from hotswap.report.figures.objective_and_error import draw_figure_1
from hotswap.report.figures.over_time import draw_figure_2
from hotswap.report.figures.ratios import draw_ratios
from hotswap.report.figures.tuning import draw_tuning

__all__ = ["draw_choices", "draw_figure_1", "draw_figure_2", "draw_objective_and_cost", "draw_ratios", "draw_tuning"]
