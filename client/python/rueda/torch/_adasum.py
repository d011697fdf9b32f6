"""Implements DistributedOptimizer(op=Adasum): each rank's optimizer makes its own step, and the steps are reduced.

Adasum is taken of what the optimizer would change, and not of gradients: an optimizer that scales or normalizes gradients would
undo what Adasum does (Maleki et al. 2021, section 4.4)."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List

import torch

from .._core import _context
from .._core._process_sets import ProcessSet
from . import _ops
from ._errors import HorovodInternalError
from ._reductions import Adasum
from ._wrapper import Wrapper


class DistributedAdasum(Wrapper):
    """A class that is put before an optimizer's class. Attributes that begin with an underscore are there when the instance is
    made."""

    _names: Dict[int, str]  # by id of the parameter
    _compression: Any
    _process_set: ProcessSet
    param_groups: List[Dict[str, Any]]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Does nothing: gradients are accumulated until step() is called, however many passes that takes."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")

    def synchronize(self) -> None:
        """Does nothing: no reduction is under way before step()."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Always raises AssertionError, because step() itself reduces."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield

    def step(self, closure: Any = None) -> Any:
        """Makes the optimizer's step, and replaces its changes by the Adasum of all ranks' changes.

        Args:
            closure: as for the optimizer's own step().

        Returns:
            What the optimizer's step() returned.
        """
        self._tell_schedulers()
        chosen = self._process_set
        if _context.size() == 1 or not chosen.included() or chosen.size() == 1:
            return super().step(closure)  # type: ignore[misc]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]
                      if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in parameters]
        loss = super().step(closure)  # type: ignore[misc]
        changes = [parameter.detach() - start for parameter, start in zip(parameters, before)]
        try:
            reduced = self._reduce(parameters, changes)
        except HorovodInternalError:
            reduced = [torch.zeros_like(change) for change in changes]
            raise
        finally:
            for parameter, start, change in zip(parameters, before, reduced):
                parameter.detach().copy_(start.add_(change))
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # as in _optimizer.py

    def _reduce(self, parameters: List[torch.Tensor], changes: List[torch.Tensor]) -> List[torch.Tensor]:
        """Reduces all changes. All reductions have ended when this returns or raises."""
        handles, contexts = [], []
        for parameter, change in zip(parameters, changes):
            smaller, context = self._compression.compress(change)
            name = self._names.setdefault(id(parameter), f"parameter.{len(self._names)}")
            handles.append(_ops.allreduce_async_(smaller, None, name, Adasum, process_set=self._process_set))
            contexts.append(context)
        reduced, failures = [], []
        for handle, context in zip(handles, contexts):
            try:
                reduced.append(self._compression.decompress(_ops.synchronize(handle), context))
            except HorovodInternalError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]
        return reduced


__all__ = ["DistributedAdasum"]
