"""Names variables alike on all ranks."""

from __future__ import annotations

import re
from typing import Any


def stable_name(variable: Any) -> str:
    """Returns a variable's path without the numbers by which Keras tells layers apart: a rank that has made one model more counts
    otherwise. It says which variable is meant, and need not be unique."""
    path = str(getattr(variable, "path", None) or getattr(variable, "name", None) or "variable")
    return "/".join(re.sub(r"_\d+$", "", part) for part in path.split(":")[0].split("/"))
