"""Checks of settings that several searches have."""

from __future__ import annotations

from hotswap.errors import SettingError

__all__ = ["check_max_trials", "is_whole"]


def is_whole(number: object) -> bool:
    """Whether it is a whole number; True and False are none."""
    return isinstance(number, int) and not isinstance(number, bool)


def check_max_trials(search: object, max_trials: int | None) -> None:
    """Refuse a `max_trials` that is not a whole number of at least 1, or None."""
    if max_trials is not None and (not is_whole(max_trials) or max_trials < 1):
        raise SettingError(
            f"{type(search).__name__}(max_trials={max_trials!r}): max_trials must be a whole number of at least 1, "
            "or None."
        )
