"""Turns the errors of ops into Horovod's."""

from __future__ import annotations

import re
from typing import Any, Optional

from .._core import _library
from .._core._errors import INTERNAL
from ..common.exceptions import HorovodArgumentError, HorovodInternalError, HostsUpdatedInterrupt, submission_error

_OF_LIBRUEDA = re.compile(r"(.*?) \[(RUEDA_ERR_\w+)\]", re.DOTALL)
_FEWEST = -14  # the codes of rueda.h are -1 to this


def told_by(error: Any) -> Optional[HorovodInternalError]:
    """Returns Horovod's error for an AbortedError, or None if no op of Rueda's has ended with it."""
    found = _OF_LIBRUEDA.search(str(error.message))
    if found is None:
        return None
    codes = {_library.error_name(code): code for code in range(_FEWEST, 0)}
    sentence = re.sub(r"^\{\{.*?\}\} ", "", found.group(1))  # TensorFlow puts the op's name before
    return submission_error(codes.get(found.group(2), INTERNAL), sentence)


def internal_error(error: Any) -> HorovodInternalError:
    """Returns Horovod's error for the AbortedError that an op of Rueda's has ended with."""
    return told_by(error) or HorovodInternalError(str(error.message), INTERNAL)


__all__ = ["HorovodArgumentError", "HorovodInternalError", "HostsUpdatedInterrupt", "internal_error",
           "told_by"]
