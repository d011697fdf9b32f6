"""Defines the state from which training begins again."""

from __future__ import annotations

import copy
import queue
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .._errors import HostsUpdatedInterrupt

HOSTS_REMOVED = 1  # in on_hosts_updated(): 0 means nothing, 1 removed, 2 added, 3 both


class State:
    """The base of states; a subclass saves, restores and makes equal on all ranks what it holds.

    on_hosts_updated() may be called from any thread, everything else from the training thread.

    Args:
        bcast_object: a function that takes an object and returns rank 0's.
        get_rank: a function that returns this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: "queue.Queue[Tuple[float, int]]" = queue.Queue()
        self._hosts_known_at: float = 0
        self._reset_callbacks: List[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Registers functions to be called after the job's ranks have changed, for the learning rate, for example."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Prepares for ranks that may be others from now on."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Records that hosts have changed, which check_host_updates() is to find out."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, to which training goes back after an error, and checks whether hosts have changed."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks, if rank 0 has heard of hosts that changed."""
        latest, kinds = self._hosts_known_at, 0
        while not self._host_messages.empty():
            timestamp, kind = self._host_messages.get()
            latest, kinds = max(latest, timestamp), kinds | kind
        before, self._hosts_known_at, kinds = self._bcast_object((self._hosts_known_at, latest, kinds))
        if self._hosts_known_at > before:
            raise HostsUpdatedInterrupt(skip_sync=kinds == HOSTS_REMOVED)

    def save(self) -> None:
        """Keeps the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what save() kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the state equal to rank 0's."""
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
        if self._saved_state:
            now = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_object(now)
            self._set_attributes()
            self.save()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, copy.deepcopy(value))
