"""Joins the job, and makes RuedaError of what XLA raises."""

from __future__ import annotations

import contextlib
import re
from typing import Iterator, Optional, Sequence, Tuple

import jax

from .._core import _context
from .._core._errors import RuedaError, error_for
from .._core._process_sets import Ranks

# The names of rueda.h's errors by their numbers, from -1 downwards.
_NAMES = ("INVALID_ARGUMENT", "MISMATCH", "DUPLICATE_NAME", "TIMEOUT", "RANK_LOST", "NODE_LOST", "DAEMON_LOST", "SHUT_DOWN", "VERSION",
          "PERMISSION", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL")
_ERROR = re.compile(r"\bRUEDA_ERR_([A-Z_]+): (.*)", re.DOTALL)

_last_place: Optional[Tuple[int, int]] = None


def init(process_sets: Optional[Sequence[Ranks]] = None, *, socket: Optional[str] = None, timeout: Optional[float] = None) -> None:
    """Attaches to the node's daemon and waits until every rank of the job has done so, as rueda.init() does. A second call does
    nothing. No other function may run at the same time.

    Compiled programs hold the number of ranks and this process's rank. If either differs from what it was before, as after a change of
    an elastic job, all of JAX's compiled programs are forgotten (jax.clear_caches).

    Args:
        process_sets, socket, timeout: as for rueda.init().

    Raises:
        RuedaError, ImportError, ValueError: as for rueda.init().
    """
    global _last_place
    _context.init(process_sets, socket=socket, timeout=timeout)
    place = (_context.rank(), _context.size())
    if _last_place is not None and _last_place != place:
        jax.clear_caches()
    _last_place = place


@contextlib.contextmanager
def rueda_errors() -> Iterator[None]:
    """Raises RuedaError, or one of its subclasses, in place of what JAX raises when a collective in a compiled program has failed:

        with rueda.jax.rueda_errors():
            parameters = jax.block_until_ready(step(parameters, batch))

    JAX raises jax.errors.JaxRuntimeError, or ValueError if the error was there before the call of the program had returned. Other
    exceptions pass as they are. Thread-safe.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        found = rueda_error(error)
        if found is None:
            raise
        raise found from error


def rueda_error(error: BaseException) -> Optional[RuedaError]:
    """Returns the RuedaError that a compiled program failed with, or None if it failed with something else. Thread-safe.

    Args:
        error: what JAX raised, or a RuedaError, which is returned.
    """
    if isinstance(error, RuedaError):
        return error
    found = _ERROR.search(str(error))
    if found is None or found.group(1) not in _NAMES:
        return None
    return error_for(-1 - _NAMES.index(found.group(1)), found.group(2))
