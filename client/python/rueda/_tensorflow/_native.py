"""Loads TensorFlow, librueda and librueda_tensorflow.so, which has the ops (client/tensorflow)."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from pathlib import Path
from typing import Any, List

from .._core import _library

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(f"rueda.tensorflow needs TensorFlow 2.15 or later, which cannot be imported ({error}); install it by "
                      "\"pip install tensorflow-cpu\"") from None

_OLDEST = (2, 15)
_NAME = "librueda_tensorflow.so"
_PACKAGE = Path(__file__).resolve().parents[1]

if tuple(int(part) for part in tf.__version__.split(".")[:2]) < _OLDEST:
    raise ImportError(f"rueda.tensorflow needs TensorFlow 2.15 or later, not {tf.__version__}; install a newer one")


def candidates() -> List[str]:
    """Returns the paths where the library of ops is looked for, in this order: beside the librueda that is loaded, and in the
    package. If $RUEDA_TENSORFLOW_LIBRARY is set, it is the only one."""
    chosen = os.environ.get("RUEDA_TENSORFLOW_LIBRARY")
    if chosen:
        return [chosen]
    beside = os.path.dirname(os.path.realpath(_library.load()._name)) if os.path.isabs(_library.load()._name) else ""
    return [*([os.path.join(beside, _NAME)] if beside else []), str(_PACKAGE / "lib" / _NAME), _NAME]


def _load() -> Any:
    tried = []
    for path in candidates():  # loads librueda first: the ops use that one
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} (no such file)")
            continue
        try:
            ops = tf.load_op_library(path)
            functions = ctypes.CDLL(path)
        except (tf.errors.OpError, OSError) as error:
            tried.append(f"{path} ({error})")
            continue
        functions.rueda_tensorflow_problem.restype = ctypes.c_char_p
        problem = functions.rueda_tensorflow_problem()
        if problem:
            raise ImportError(f"TensorFlow {tf.__version__} does not take the ops of {path}: {problem.decode('utf-8', 'replace')}")
        # TensorFlow's threads and librueda's end in an order that nobody knows, so nothing is called back after this.
        atexit.register(functions.rueda_tensorflow_take_back)
        return ops
    raise ImportError(f"{_NAME} was not found; install Rueda with it, or set RUEDA_TENSORFLOW_LIBRARY to its path. Looked at: "
                      + "; ".join(tried))


_ops: Any = None
_lock = threading.Lock()


def ops() -> Any:
    """Returns the module of the ops, which are loaded at the first call. Thread-safe.

    Raises:
        ImportError: the library was not found, or TensorFlow does not take it.
    """
    global _ops
    if _ops is None:
        with _lock:
            if _ops is None:
                _ops = _load()
    return _ops
