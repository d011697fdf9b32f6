"""Defines the state from which training begins again."""

from __future__ import annotations

import copy
import queue
import time
from typing import Any, Callable, Dict, Iterable, List

import numpy as np

from .._core import _context
from .._core._errors import RuedaError
from .._core._operations import Max, broadcast
from .._core._parts import reduce
from ..common.exceptions import HostsUpdatedInterrupt, horovod_error

_MOST_RANKS = 1 << 24


def _greatest(value: Any, dtype: Any, name: str) -> Any:
    """Returns the greatest of all ranks' values, of 8 bytes. An all-reduce would end a locked schedule in each step that commits;
    operations with a root are beside it (decision 76).

    Raises:
        HorovodInternalError: a rank is lost.
    """
    try:
        greatest = reduce(np.array([value], dtype), 0, f"{name}.up", Max)
        return broadcast(np.array([value], dtype) if greatest is None else greatest, 0, f"{name}.down")[0].item()
    except RuedaError as error:
        raise horovod_error(error) from None


class State:
    """The base of states; a subclass saves, restores and makes equal on all ranks what it holds.

    on_hosts_updated() may be called from any thread, everything else from the training thread. While on_reset() runs,
    `previous_size` and `current_size` are the numbers of ranks before and now.

    Args:
        bcast_object: a function that takes an object and returns that of rank 0, or of the rank that `root_rank` says.
        get_rank: a function that returns this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: "queue.Queue[float]" = queue.Queue()
        self._hosts_known_at: float = 0
        self._commits = 0  # since training began, on whichever rank has made most
        self._reset_callbacks: List[Callable[[], Any]] = []
        self.previous_size = 0
        self.current_size = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Registers functions to be called after the job's ranks have changed, for the learning rate, for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Prepares for ranks that may be others from now on."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Records that hosts have changed, which check_host_updates() is to find out.

        Args:
            timestamp: the seconds since the epoch at which they did; a change that all ranks have been told of is no news.
            update_res: what has changed, as Horovod counts it; it makes no difference here.
        """
        self._host_messages.put(timestamp)

    def commit(self) -> None:
        """Saves the state, to which training goes back after an error, and checks whether hosts have changed."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks, if any rank has heard of hosts that changed."""
        heard = 0.0  # the time of the newest change that is news to this rank; 0 if there is none
        while not self._host_messages.empty():
            timestamp = self._host_messages.get()
            if timestamp > self._hosts_known_at:
                heard = max(heard, timestamp)
        if _context.hosts_changed():
            heard = max(heard, time.time())
        newest = _greatest(heard, np.float64, "elastic.hosts")
        if newest > 0:
            self._hosts_known_at = max(self._hosts_known_at, newest)
            raise HostsUpdatedInterrupt()

    def _agree_on_root(self) -> int:
        """Returns the lowest rank with the newest commit, which a rank that is new, or has failed in between, has not."""
        place = self._commits * _MOST_RANKS + _MOST_RANKS - 1 - self._rank()
        greatest = _greatest(place, np.int64, "elastic.root")
        self._commits = greatest // _MOST_RANKS
        return int(_MOST_RANKS - 1 - greatest % _MOST_RANKS)

    def save(self) -> None:
        """Keeps the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what save() kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the state equal on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Does what a subclass needs after the ranks have changed."""


class ObjectState(State):
    """A state whose parts are attributes, given by name, of any type that can be pickled."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: Dict[str, Any] = kwargs
        self._set_attributes()

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes()

    def sync(self) -> None:
        """Makes the state equal to that of the lowest rank with the newest commit."""
        self._sync_from(self._agree_on_root())

    def _sync_from(self, root: int) -> None:
        if self._saved_state:
            now = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_object(now) if root == 0 else self._bcast_object(now, root_rank=root)
            self._set_attributes()
            self.save()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))
