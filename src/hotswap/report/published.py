"""What the paper printed (Bache, DeCoste, Smyth, 2015): the numbers that ours stand beside."""

from __future__ import annotations

__all__ = ["BEST_TEST_ERROR", "MEDIAN_TEST_ERROR", "MILLISECONDS", "SECONDS", "TABLE_COLUMNS"]

TABLE_COLUMNS = (("sgd", 0), ("adadelta", 0), ("ducb", 100), ("ducb", 300), ("ducb", 500))
"""Algorithm and epoch of each column of Tables 1 and 2; 0: the time does not depend on it."""

MILLISECONDS = {  # Table 1, per minibatch, by batch size
    64: (11.9, 12.1, 30.1, 40.2, 42.4),
    128: (13.0, 13.2, 20.3, 38.8, 43.7),
    256: (16.8, 16.7, 26.4, 39.7, 49.2),
    512: (24.7, 25.5, 37.9, 38.2, 56.2),
    1024: (39.2, 40.8, 60.2, 60.4, 63.3),
}

SECONDS = {  # Table 2, per epoch, by batch size
    64: (9.3, 9.4, 23.5, 31.4, 33.2),
    128: (5.1, 5.2, 7.9, 15.2, 17.1),
    256: (3.3, 3.3, 5.2, 7.8, 9.6),
    512: (2.4, 2.5, 3.7, 3.7, 5.5),
    1024: (1.9, 2.0, 3.0, 3.0, 3.1),
}

MEDIAN_TEST_ERROR = {"ducb": 0.0185, "adadelta": 0.0197, "sgd": 0.0235}
BEST_TEST_ERROR = 0.0163
