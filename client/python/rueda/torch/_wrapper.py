"""Makes an optimizer of a class that is put before its own."""

from __future__ import annotations

import copy
import copyreg
from typing import Any, Callable, Dict, List

import torch

Wrap = Callable[[torch.optim.Optimizer], torch.optim.Optimizer]


class Wrapper:
    """The base of such classes. Attributes that begin with an underscore are there when the instance is made."""

    _plain: Any  # the optimizer that was wrapped
    _plain_kind: type
    _wrap_alike: Wrap
    _parameter_names: Dict[torch.Tensor, str]  # has the same form as Horovod's

    def _tell_schedulers(self) -> None:
        """Marks that a step is made: schedulers of the plain optimizer would warn that there was none."""
        self._plain._step_count = getattr(self._plain, "_step_count", 0) + 1
        self._plain._opt_called = True  # PyTorch 2 has this mark for it

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles the plain optimizer, because a scheduler's state may hold an optimizer, and there may be no job, and no Rueda,
        where it is read."""
        made = (self._plain_kind, object, None)
        return copyreg._reconstructor, made, self.__getstate__()  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: "dict[int, Any]") -> Any:
        """Copies the optimizer with its parameters, distributed in the same way."""
        make, arguments, state = self.__reduce_ex__(4)
        copied = make(*arguments)
        copied.__setstate__(copy.deepcopy(state, memo))
        memo[id(self)] = distributed = self._wrap_alike(copied)
        return distributed


def parameters_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def put_before(first: type, optimizer: torch.optim.Optimizer, wrap_alike: Wrap, names: Dict[torch.Tensor, str],
               **attributes: Any) -> torch.optim.Optimizer:
    """Returns the optimizer with that class before its own and these attributes. `wrap_alike` does the same with a copy."""
    kind = type(optimizer)
    distributed_kind: Any = type(kind.__name__, (first, kind), {"__module__": kind.__module__, "_plain_kind": kind})
    distributed = distributed_kind.__new__(distributed_kind)
    # A learning rate scheduler may have put its own step() into the instance, which would call the step() of the old class.
    distributed.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    distributed.__dict__.update(attributes, _plain=optimizer, _wrap_alike=wrap_alike, _parameter_names=names)
    return distributed
