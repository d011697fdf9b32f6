"""Imports Keras 3, and says what is missing."""

from __future__ import annotations

try:
    import keras
except ImportError as error:
    raise ImportError(f"rueda.keras needs Keras 3, which cannot be imported ({error}); install it by \"pip install keras "
                      "tensorflow-cpu\"") from None

if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"rueda.keras needs Keras 3, not {keras.__version__}; with Keras 2 use rueda.tensorflow.keras")
if keras.backend.backend() != "tensorflow":
    raise ImportError(f"rueda.keras serves the backend tensorflow, not {keras.backend.backend()}; set KERAS_BACKEND=tensorflow")

__all__ = ["keras"]
