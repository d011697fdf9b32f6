"""Lets Rueda take the name of PyTorch's backend "gloo", for frameworks that ask for it and check that they got it."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

import torch.distributed as dist

from ._backend import ProcessGroupRueda

VARIABLE = "RUEDA_TORCH_REPLACES"
_NAMES = ("gloo",)
_is_installed = False


def install(as_: str = "gloo") -> None:
    """Makes torch.distributed give groups of Rueda's to whoever asks for another backend by its name, in this process, from now on.

    init_process_group and new_group with the backend `as_` make groups of Rueda's, and get_backend says `as_` of every group of
    Rueda's, whoever has asked for it. What names no backend, or several (`"cpu:gloo,cuda:nccl"`), is left to PyTorch; groups that are
    there already stay what they are. It must be called before a framework takes the functions from torch.distributed by
    `from torch.distributed import ...`. A second call has no effect. Not thread-safe.

    Args:
        as_: the name; there is only "gloo".

    Raises:
        ValueError: the name is another one.
    """
    if as_ not in _NAMES:
        raise ValueError(f"as_={as_!r} must be \"gloo\", which is the only backend whose name Rueda can take")
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    _replace("init_process_group", _giving(0, as_))
    _replace("new_group", _giving(2, as_))
    _replace("get_backend", _answering(as_))


def install_from_environment() -> None:
    """Installs what RUEDA_TORCH_REPLACES asks for, if it is set to anything.

    Raises:
        ValueError: its value is none of the names.
    """
    name = os.environ.get(VARIABLE, "")
    if name and name not in _NAMES:
        raise ValueError(f"{VARIABLE}={name!r} must be \"gloo\", the only backend whose name Rueda can take, or not be set")
    if name:
        install(name)


def _replace(name: str, wrapped: Callable[[Any], Any]) -> None:
    function = wrapped(getattr(dist.distributed_c10d, name))
    setattr(dist, name, function)
    setattr(dist.distributed_c10d, name, function)


# Wraps a function of torch.distributed whose argument number `place` is a backend's name.
def _giving(place: int, taken: str) -> Callable[[Any], Any]:
    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            given = list(arguments)
            if len(given) > place:
                given[place] = _instead_of(given[place], taken)
            elif "backend" in named:
                named["backend"] = _instead_of(named["backend"], taken)
            return function(*given, **named)

        return call

    return wrap


def _instead_of(backend: Any, taken: str) -> Any:
    if not isinstance(backend, str):
        return backend
    parts = {part.rpartition(":")[2].strip() for part in backend.lower().split(",")}  # as in "cpu:gloo"
    return "rueda" if parts == {taken} else backend


def _answering(taken: str) -> Callable[[Any], Any]:
    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def get_backend(group: Any = None) -> str:
            found = dist.group.WORLD if group is None else group
            if isinstance(found, ProcessGroupRueda):
                return taken
            return str(function(group))

        return get_backend

    return wrap
