"""What training begins again from."""

from __future__ import annotations

import copy
import queue
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .._errors import HostsUpdatedInterrupt

HOSTS_REMOVED = 1  # of on_hosts_updated: 0 nothing, 1 removed, 2 added, 3 both


class State:
    """What a subclass saves, restores and makes equal on all ranks.

    bcast_object: a function of an object that gives rank 0's; get_rank: this process's rank.
    on_hosts_updated() may be called from any thread, everything else from the training one.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: "queue.Queue[Tuple[float, int]]" = queue.Queue()
        self._hosts_known_at: float = 0
        self._reset_callbacks: List[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Functions to be called after the job's ranks have changed, such as for the learning rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks may be others from now on."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Hosts have changed, as check_host_updates() is to find out."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, to which an error goes back, and looks whether hosts have changed."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """HostsUpdatedInterrupt, on all ranks, if rank 0 has heard of hosts that changed."""
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
        """Makes the state what it is on rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """What a subclass does after the ranks have changed."""


class ObjectState(State):
    """A state whose parts are attributes: those given by name, which may be of any type that can be
    pickled."""

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
