"""Finds librueda_mpi.so, through which an unmodified jaxlib runs its own collectives on Rueda."""

from __future__ import annotations

import ctypes
import os
from typing import Dict

from . import _native

_NAME = "librueda_mpi.so"


def mpi_environment() -> Dict[str, str]:
    """Returns the environment variables with which a program that knows nothing of Rueda runs JAX's own collectives (psum, shard_map,
    explicit shardings) on it, under ruedarun. They must be there when the program's process begins, because jaxlib reads them while it is
    imported:

        eval "$(python3 -m rueda.jax)"        # prints them for a shell
        ruedarun -np 4 python3 train.py

    Raises:
        ImportError: librueda_mpi.so was not found or cannot be loaded; the text says where it was looked for.
    """
    tried = []
    for path in _native.beside_librueda(_NAME):
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} (no such file)")
            continue
        try:
            ctypes.CDLL(path)  # import jax would end the process without a way back
        except OSError as error:
            tried.append(f"{path} ({error})")
            continue
        return {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi", "MPITRAMPOLINE_LIB": path}
    raise ImportError(f"{_NAME} was not found beside librueda; looked at: " + "; ".join(tried))
