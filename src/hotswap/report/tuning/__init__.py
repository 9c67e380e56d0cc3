"""The price of tuning: how many trainings a search over settings takes to match one run that chooses its own rate."""

from hotswap.report.tuning.price import Found, Searched, Trainings, Tuning, best_of, price_of_tuning
from hotswap.report.tuning.space import MEASURES, Measure, Space, space_of

__all__ = [
    "MEASURES",
    "Found",
    "Measure",
    "Searched",
    "Space",
    "Trainings",
    "Tuning",
    "best_of",
    "price_of_tuning",
    "space_of",
]
