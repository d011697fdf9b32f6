"""Implements messages from one rank to another over NumPy arrays. Every function may be called from any thread."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Optional, cast

import numpy as np

from . import _library
from ._dtypes import as_array, code_of
from ._errors import UNAVAILABLE, RuedaError, RuedaTimeoutError
from ._library import Result, byref, check
from ._operations import Pending, Slot, library_handle_of, register_pending, require_init, synchronize
from ._process_sets import ProcessSet, id_of

ANY_SOURCE = -1


def _tag_of(tag: int) -> int:
    tag = operator.index(tag)
    if not -2**63 <= tag < 2**63:
        raise ValueError(f"tag={tag} has more than 64 bits")
    return tag


def send_async(tensor: np.ndarray, destination: int, tag: int = 0, *, dtype: Optional[str] = None,
               process_set: Optional[ProcessSet] = None) -> int:
    """Starts sending an array to one rank, which receives it with recv() or recv_async().

    A send and a receive match if they name each other's ranks, and have the same tag and process set; of several, the first send
    goes to the first receive. The send ends when its receive has been submitted and the data has left the array: where two ranks
    send to each other, both start their receives before they wait for their sends. Transfers wait for no collective.

    Args:
        tensor: the array, which must not change until the send has ended.
        destination: a rank of the job, which is in the process set. It may be this one.
        tag: any number of 64 bits.
        dtype, process_set: as for allreduce_async().

    Returns:
        A handle, for which synchronize() returns None.

    Raises:
        RuedaError: from here or from synchronize(). The code is RUEDA_ERR_MISMATCH if the receiver's array has another dtype or
            size, and RUEDA_ERR_SHUT_DOWN if the destination has left the job.
    """
    array = as_array(tensor)
    code = code_of(array, dtype)
    require_init()
    source = array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")
    handle = ctypes.c_uint64()
    check(_library.load().rueda_send_async(source.ctypes.data, source.size, code, operator.index(destination), _tag_of(tag),
                                           id_of(process_set), byref(handle)))
    return register_pending(Pending([], handle=handle.value, memory=source))


def recv_async(tensor: np.ndarray, source: int = ANY_SOURCE, tag: int = 0, *, dtype: Optional[str] = None,
               process_set: Optional[ProcessSet] = None) -> int:
    """Starts receiving from one rank, or from any, into an array; see send_async().

    Args:
        tensor: the array to be written. It must have the dtype and as many elements as what is sent.
        source: a rank of the job; rueda.ANY_SOURCE takes what comes first from a rank of the process set.
        tag, dtype, process_set: as for send_async().

    Returns:
        A handle, for which synchronize() returns the rank that sent what is in the array then.

    Raises:
        RuedaError: as for send_async().
        ValueError: the array is read-only.
    """
    array = as_array(tensor)
    code = code_of(array, dtype)
    if not array.flags.writeable:
        raise ValueError("the array is read-only, and cannot be received into")
    require_init()
    is_plain = array.flags.c_contiguous and array.flags.aligned
    target = array if is_plain else np.empty(array.shape, array.dtype)
    told = Result()
    handle = ctypes.c_uint64()
    check(_library.load().rueda_recv_async(target.ctypes.data, target.size, code, operator.index(source), _tag_of(tag),
                                           id_of(process_set), byref(handle)))
    return register_pending(Pending([Slot(target, target, array, None)], handle=handle.value, told=told,
                                    finish=lambda: int(told.value)))


def cancel(handle: int) -> None:
    """Takes back a send or a receive that is not needed any more, without waiting.

    If it has met no other half, it ends without having moved data, and synchronize() raises RuedaError with RUEDA_ERR_UNAVAILABLE.
    Otherwise it ends as it would have. Either way synchronize() is to be called: only its end says what came of it.

    Args:
        handle: what send_async() or recv_async() returned.

    Raises:
        RuedaError: the handle is of anything else.
        ValueError: the handle is unknown.
    """
    check(_library.load().rueda_cancel(library_handle_of(handle)))


def send(tensor: np.ndarray, destination: int, tag: int = 0, *, dtype: Optional[str] = None,
         process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> None:
    """Sends an array to one rank, and waits until it has gone: send_async(), then synchronize().

    Args:
        tensor, destination, tag, dtype, process_set: as for send_async().
        timeout: seconds to wait; None waits for ever.

    Raises:
        RuedaTimeoutError: the time was up; the send goes on.
        RuedaError: as for send_async().
    """
    synchronize(send_async(tensor, destination, tag, dtype=dtype, process_set=process_set), timeout)


def recv(tensor: np.ndarray, source: int = ANY_SOURCE, tag: int = 0, *, dtype: Optional[str] = None,
         process_set: Optional[ProcessSet] = None, timeout: Optional[float] = None) -> int:
    """Receives into an array, and waits until the data is there: recv_async(), then synchronize().

    Args:
        tensor, source, tag, dtype, process_set: as for recv_async().
        timeout: seconds to wait; None waits for ever.

    Returns:
        The rank that sent the data.

    Raises:
        RuedaTimeoutError: the time was up, and nothing was received. If a send had met the receive just then, the call waits for its
            data instead.
        RuedaError: as for recv_async().
    """
    handle = recv_async(tensor, source, tag, dtype=dtype, process_set=process_set)
    try:
        return cast(int, cast(Any, synchronize(handle, timeout)))
    except RuedaTimeoutError as late:
        cancel(handle)
        try:
            return cast(int, cast(Any, synchronize(handle)))
        except RuedaError as error:
            raise (late if error.code == UNAVAILABLE else error) from None
