"""Keeps the store by which ranks meet from one init_process_group to the next.

With `env://` and `tcp://` PyTorch's store is served by rank 0's process, and goes with its last group. A rank that makes its next
group a moment earlier than rank 0 finds the old store still there, and loses it under its hands. So the first store of an address
is kept, which PyTorch then finds again, and each init_process_group but the first has a prefix of its own in the store, so that
it does not read what an earlier one has left there. torchrun's store is there all the time, but has the same keys again: the
prefix helps there, too."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable, Dict, Iterator, Tuple

import torch.distributed as dist

_SCHEMES = ("env", "tcp")

# The first store of each address, and the number of stores that were made for it.
_kept: "Dict[Tuple[str, int], Tuple[Any, int]]" = {}


def _served(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _address(served: Any) -> "Tuple[str, int]":
    return str(getattr(served, "host", "")), int(getattr(served, "port", 0))


def _numbered(store: Any) -> Any:
    address = _address(_served(store))
    first, made = _kept.get(address, (store, 0))
    _kept[address] = (first, made + 1)
    return store if made == 0 else dist.PrefixStore(f"rueda/again/{made}", store)


def keep(store: Any) -> None:
    """Keeps the store of a process's first group, where it was made before install(). Does nothing if it is kept already, or if no
    process of a rank serves it."""
    served = _served(store)
    if getattr(served, "host", ""):
        _kept.setdefault(_address(served), (store, 1))


def _keeping(handler: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(handler)
    def meet(*arguments: Any, **named: Any) -> Iterator[Any]:
        for store, rank, size in handler(*arguments, **named):
            yield _numbered(store), rank, size

    return meet


def install() -> None:
    """Replaces PyTorch's functions, once in a process and for whatever backend."""
    # The module is imported by name, because torch.distributed.rendezvous is a function, too.
    handlers = getattr(importlib.import_module("torch.distributed.rendezvous"), "_rendezvous_handlers", {})
    for scheme in _SCHEMES:
        if scheme in handlers and not hasattr(handlers[scheme], "__wrapped__"):
            handlers[scheme] = _keeping(handlers[scheme])
