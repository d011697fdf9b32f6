"""Makes the process group of one generation of an elastic job after the other, in one process."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any, List

import numpy as np
import torch.distributed as dist

from .._core import _context, _operations
from .._core._errors import FORMS_AGAIN, RuedaError, RuedaInternalError
from . import _start

_ADDRESS_BYTES = 128
_NEWS_TRAVELS_S = 1.0
# PyTorch's own store of each generation is served by the process of its rank 0. The last one is kept as well, because others may
# not be done with it yet.
_KEPT = 2
_stores: List[Any] = []


def init_elastic_process_group(timeout: timedelta = timedelta(minutes=5), **options: Any) -> None:
    """Takes part in the next generation of an elastic job, and makes the process group of its ranks.

    The group of the generation before is destroyed, and what was wrapped for it (DistributedDataParallel) must be wrapped anew.
    It waits until enough ranks are there, and begins again by itself when one of them dies meanwhile.

    Args:
        timeout: of the group's collectives, and of the start of the group.
        options: further arguments of torch.distributed.init_process_group.

    Raises:
        RuntimeError: the process is in no elastic job (ruedarun --min-np), or that is over.
    """
    if "RUEDA_ELASTIC" not in os.environ:
        raise RuntimeError("this is no elastic job: start it with ruedarun --min-np, or call init_process_group(\"rueda\")")
    while True:
        _leave()
        try:
            _context.init()
            store = _store_of_generation(timeout)
            dist.init_process_group("rueda", store=store, rank=_context.rank(), world_size=_context.size(), timeout=timeout, **options)
            return
        except RuntimeError as error:
            if not (isinstance(error, RuedaError) and error.code in FORMS_AGAIN) and not has_lost_membership():
                raise


def hosts_changed() -> bool:
    """Returns, on all ranks alike, whether processes wait to take part: a good moment for init_elastic_process_group. It is a
    collective, of 8 bytes."""
    wish = np.array([int(_context.hosts_changed())], np.int64)
    return bool(_operations.allreduce(wish, name="rueda.distributed.hosts", op=_operations.Max)[0])


def has_lost_membership() -> bool:
    """Returns whether this process's membership of the job has ended, because a rank, a node or the daemon has died or stands
    still: init_elastic_process_group begins another one. If not, what has failed is the program, which would do so again."""
    give_up = time.monotonic() + _NEWS_TRAVELS_S
    while _context.is_initialized():
        try:
            _context.hosts_changed()
        except RuedaInternalError:
            return True
        if time.monotonic() >= give_up:
            return False
        time.sleep(0.01)  # a connection between ranks may break before the daemons say why
    return False


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    if _context.is_initialized():
        _start.leave()


def _store_of_generation(timeout: timedelta) -> Any:
    told = np.zeros(_ADDRESS_BYTES, np.uint8)
    store = None
    if _context.rank() == 0:
        host = _start.own_host(None)
        store = dist.TCPStore(host, 0, _context.size(), True, timeout, False)
        text = f"{store.port} {host}".encode()
        told[:len(text)] = np.frombuffer(text, np.uint8)
    _operations.broadcast_(told, 0, name="rueda.distributed.store")
    port, host = bytes(told).rstrip(b"\0").decode().split(" ", 1)
    if store is None:
        store = dist.TCPStore(host, int(port), _context.size(), False, timeout, False)
    _stores.append(store)
    del _stores[:-_KEPT]
    return store
