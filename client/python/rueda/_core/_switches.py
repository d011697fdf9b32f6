"""Reads environment variables that switch something on or off."""

from __future__ import annotations

import os


def is_switched_on(variable: str, otherwise: bool) -> bool:
    """Returns whether an environment variable is 1; `otherwise` if it is not set.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(variable)
    if value not in (None, "", "0", "1"):
        raise ValueError(f"{variable}={value!r} must be 0 or 1")
    return otherwise if not value else value == "1"
