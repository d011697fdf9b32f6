"""Defines the options of a process group, as a caller gives them to new_group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, List, Optional

import torch._C._distributed_c10d as _c10d

_Base: Any = getattr(getattr(_c10d, "Backend", None), "Options", object)  # PyTorch 1.13 has none that Python can make


class Options(_Base):  # type: ignore[misc]
    """Options of a process group, for the parameter `pg_options` of init_process_group, new_group and split_group. Not thread-safe.

    Args:
        timeout: the group's timeout, which counts more than the call's own parameter; None leaves it to that.
    """

    global_ranks_in_group: List[int]
    group_name: str

    def __init__(self, timeout: Optional[timedelta] = None) -> None:
        if timeout is not None and timeout <= timedelta(0):
            raise ValueError(f"timeout={timeout} must be more than 0")
        if _Base is object:
            self.backend = "rueda"
        else:
            super().__init__("rueda")
        self.timeout = timeout
        self._timeout = _c10d._DEFAULT_PG_TIMEOUT if timeout is None else timeout


def timeout_of(options: Any, timeout: timedelta) -> timedelta:
    """Returns the timeout of a group for which a caller has given these options (None: none) and this timeout.

    Raises:
        TypeError: the options are another backend's.
    """
    if options is None:
        return timeout
    if not isinstance(options, Options):
        kind = type(options)
        raise TypeError(f"pg_options of the backend \"rueda\" must be a rueda.distributed.Options, not {kind.__module__}.{kind.__qualname__}")
    return timeout if options.timeout is None else options.timeout
