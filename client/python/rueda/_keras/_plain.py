"""Keeps TensorFlow from converting functions, where there is TensorFlow."""

from __future__ import annotations

import sys
from typing import Any


def plain(function: Any) -> Any:
    """Returns a function that stays Python's, also while TensorFlow makes a graph."""
    tensorflow = sys.modules.get("tensorflow")  # Keras has imported its backend before
    return function if tensorflow is None else tensorflow.autograph.experimental.do_not_convert(function)
