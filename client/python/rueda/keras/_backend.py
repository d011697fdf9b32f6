"""Imports Keras 3, and what goes with its backend, and says what is missing."""

from __future__ import annotations

import os
from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError(f"rueda.keras needs Keras 3, which cannot be imported ({error}); install it by \"pip install keras "
                      "tensorflow-cpu\"") from None

_BACKENDS = ("tensorflow", "jax", "torch")

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"rueda.keras needs Keras 3, not {keras.__version__}; with Keras 2 use rueda.tensorflow.keras")

_chosen: str = keras.backend.backend()
if _chosen not in _BACKENDS:
    raise ImportError(f"rueda.keras serves the backends {', '.join(_BACKENDS)}, not {_chosen}; set KERAS_BACKEND=tensorflow before "
                      "keras is imported")


def check() -> None:
    """Raises RuntimeError if Keras has, or is told to have, another backend than when this module was imported."""
    found = os.environ.get("KERAS_BACKEND", _chosen)
    found = keras.backend.backend() if found == _chosen else found
    if found != _chosen:
        raise RuntimeError(f"Keras's backend was {_chosen} when rueda.keras was imported, and {found} has been asked for since; set "
                           f"KERAS_BACKEND={found} before the first import of keras and rueda.keras")


check()
functions: Any  # what the front end is made of
if _chosen == "tensorflow":
    from . import _on_tensorflow as functions
elif _chosen == "jax":
    from . import _on_jax as functions
else:
    from . import _on_torch as functions

__all__ = ["check", "functions", "keras"]
