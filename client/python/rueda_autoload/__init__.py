"""Makes the backend "rueda" known to torch.distributed at `import torch`, so that no program needs to import rueda.distributed.

PyTorch calls register() at the end of `import torch`, from 2.5 on, if the package has been installed (pip) and
TORCH_DEVICE_BACKEND_AUTOLOAD is not 0. This package is not a part of `rueda`, because whatever it imports is imported by every
program that imports PyTorch (docs/decisions/0098-found-at-import-torch.md)."""

from __future__ import annotations

import os
import sys
from typing import Any

_REPLACES = "RUEDA_TORCH_REPLACES"


def register() -> None:
    """Registers the backend, without importing `rueda`: the first process group does that. Where RUEDA_TORCH_REPLACES is set, imports
    rueda.distributed, which lets Rueda take another backend's name. Never raises: `import torch` would fail with it. What is wrong
    with RUEDA_TORCH_REPLACES is raised by torch.distributed.init_process_group."""
    try:
        import torch.distributed as dist

        if not dist.is_available() or "RUEDA" in vars(dist.Backend):
            return
        dist.Backend.register_backend("rueda", _create, extended_api=True, devices=["cpu", "cuda"])
    except Exception as error:
        _warn(f"the backend \"rueda\" of torch.distributed is not there without `import rueda.distributed`: {error!r}")
        return
    if os.environ.get(_REPLACES):
        _replace(dist)


def _create(made: Any, options: Any = None) -> Any:
    is_late = "rueda.distributed" not in sys.modules
    from rueda.distributed import _backend, _stores

    if is_late:  # so PyTorch had made the store before anyone could see to it
        _stores.keep(made.store)
    return _backend.create(made, options)


# A program that was to run on Rueda must not run on something else, so it gets the error where it makes its first group.
def _replace(dist: Any) -> None:
    try:
        import rueda.distributed  # noqa: F401
    except Exception as error:
        cause = error

        def init_process_group(*arguments: Any, **named: Any) -> None:
            raise RuntimeError(f"{_REPLACES}={os.environ.get(_REPLACES)!r} could not be followed: {cause}") from cause

        dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group


def _warn(text: str) -> None:
    try:
        print(f"rueda: {text}", file=sys.stderr)
    except Exception:  # standard error is closed
        pass
