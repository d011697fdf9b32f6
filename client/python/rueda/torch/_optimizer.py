"""Implements DistributedOptimizer: an optimizer whose gradients are those of all ranks."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

import torch

from .._core._operations import Average
from .._core._process_sets import ProcessSet, global_process_set
from .._core._switches import is_switched_on
from . import _ops
from ._adasum import DistributedAdasum
from ._compression import Compression
from ._gradients import Reducer, Settings, Unit, warn_of_second_synchronize
from ._reductions import Adasum
from ._wrapper import Wrapper, parameters_of, put_before

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]


class _Distributed(Wrapper):
    """A class that is put before an optimizer's class. `_reducer` and the flags are there when the instance is made."""

    _reducer: Reducer
    _skips_synchronize: bool
    _steps_when_ready: bool
    param_groups: List[Dict[str, Any]]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Accumulates gradients over so many backward passes from the next step on."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self._reducer.passes = passes
        self._reducer.begin_step()

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. It serves what must be done to gradients before step(), such as clipping; step()
        is then called within skip_synchronize()."""
        self._reducer.drop_zeros_of_frozen()
        if self._reducer.is_active():
            try:
                self._reducer.begin_rest()
            finally:
                self._reducer.finish_all()
        else:
            self._reducer.begin_step()
        self._reducer.is_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Returns a context in which step() does not wait for the gradients, because synchronize() has done so."""
        self._skips_synchronize = True
        try:
            yield
        finally:
            self._skips_synchronize = False

    def step(self, closure: Any = None) -> Any:
        """Waits for the gradients and makes the optimizer's step.

        Args:
            closure: if given, its gradients are waited for each time that the optimizer calls it. LBFGS, which goes by the loss,
                gets the average loss of all ranks.

        Returns:
            What the optimizer's step() returned.
        """
        self._tell_schedulers()
        self._reducer.drop_zeros_of_frozen()
        if self._skips_synchronize:
            self._reducer.is_synchronized = False
            return super().step(closure)  # type: ignore[misc]
        if closure is not None:
            if self._reducer.is_under_way():
                self.synchronize()
            return super().step(functools.partial(self._call_closure, closure))  # type: ignore[misc]
        if self._reducer.is_still_synchronized():
            warn_of_second_synchronize()
        elif self._steps_when_ready and self._reducer.is_active():
            self._step_when_ready()
            return None
        else:
            self.synchronize()
        self._reducer.is_synchronized = False
        return super().step()  # type: ignore[misc]

    # Optimizer puts hooks and a profiler's range around step() of a class that does not say that it has them: the class of
    # before has, and would call them twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _call_closure(self, closure: Callable[[], Any]) -> Any:
        self._reducer.is_synchronized = False
        with torch.enable_grad():
            loss = closure()
        self.synchronize()
        self._reducer.is_synchronized = False
        if isinstance(self, torch.optim.LBFGS) and self._reducer.is_active():
            value = loss.detach().clone() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss))
            return _ops.synchronize(_ops.allreduce_async_(value, None, "closure.loss", Average,
                                                          process_set=self._reducer.settings.process_set))
        return loss

    def _step_when_ready(self) -> None:
        """Steps each parameter when its own gradient is there."""
        whole = self.param_groups
        try:
            self._reducer.begin_rest()
            while units := self._reducer.finish_some():
                chosen = {id(gradient.parameter) for unit in units for gradient in unit.gradients}
                self.param_groups = [{**group, "params": [p for p in group["params"] if id(p) in chosen]}
                                     for group in whole]
                super().step()  # type: ignore[misc]
        finally:
            self.param_groups = whole
            self._reducer.finish_all()

    def zero_grad(self, *arguments: Any, **named: Any) -> None:
        """Does what the optimizer's method does, but gradients in the arena stay there, as zeros, also with set_to_none=True,
        unless the parameter is frozen or somebody has kept the tensor.

        Raises:
            AssertionError: it was called between backward() and step().
        """
        if self._reducer.is_under_way():
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() and before "
                                 "optimizer.step() or optimizer.synchronize(): gradients are under way")
        self._reducer.is_synchronized = False
        gradients = self._reducer.in_arena()
        super().zero_grad(*arguments, **named)  # type: ignore[misc]
        for gradient in gradients:
            if gradient.parameter.grad is None and gradient.parameter.requires_grad:
                gradient.put_zeros()

    def load_state_dict(self, *arguments: Any, **named: Any) -> None:
        """Does what the optimizer's method does, after gradients that are under way have ended, well or not."""
        self._reducer.abandon()
        self._reducer.is_synchronized = False
        super().load_state_dict(*arguments, **named)  # type: ignore[misc]

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Does what the optimizer's method does. The new parameters' gradients are reduced, too, each by itself."""
        super().add_param_group(param_group)  # type: ignore[misc]
        for parameter in self.param_groups[-1]["params"]:
            name = f"parameter.{_count(self._reducer.units)}"
            self._parameter_names[parameter] = name
            self._reducer.add([name], [parameter])


def _count(units: List[Unit]) -> int:
    return sum(len(unit.gradients) for unit in units)


def _names_of(parameters: Sequence[torch.Tensor],
              named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]) -> List[str]:
    """Returns the parameters' names, or numbers in place of them.

    Raises:
        ValueError: names are missing or not unique.
    """
    named = [] if named_parameters is None else list(named_parameters)
    if not named:
        return [f"parameter.{i}" for i in range(len(parameters))]
    if any(not isinstance(item, tuple) for item in named):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually "
                         "model.named_parameters()")
    seen: Set[str] = set()
    twice = sorted({name for name, _ in named if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if twice:
        raise ValueError(f"parameter names in named_parameters must be unique; these are there twice: "
                         f"{', '.join(twice)}")
    names = {id(parameter): name for name, parameter in named}
    missing = [i for i, parameter in enumerate(parameters) if id(parameter) not in names]
    if missing:
        raise ValueError("named_parameters was specified, but one or more of the optimizer's parameters were not "
                         f"named: their places are {missing}; itertools.chain puts the names of several models "
                         "together")
    return [names[id(parameter)] for parameter in parameters]


def _grouped(parameters: Sequence[torch.Tensor], groups: Groups) -> List[List[torch.Tensor]]:
    """Returns which parameters are reduced together: as many groups as were asked for, or the given groups and each other
    parameter by itself."""
    if groups is None or (isinstance(groups, int) and groups == 0):
        return [[parameter] for parameter in parameters]
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of lists of tensors")
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        count = min(groups, len(learning)) or 1
        cuts = [len(learning) * i // count for i in range(count + 1)]
        chosen = [list(learning[begin:end]) for begin, end in zip(cuts, cuts[1:]) if end > begin]
    elif isinstance(groups, (list, tuple)):
        chosen = [list(group) for group in groups if len(group)]
    else:
        raise ValueError("groups should be a non-negative integer or a list of lists of tensors")
    own = {id(parameter) for parameter in parameters}
    grouped: Set[int] = set()
    for group in chosen:
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError("groups must consist of torch.Tensor")
            if id(parameter) in grouped:
                raise ValueError("a parameter can only appear once in groups")
            if id(parameter) not in own:
                raise ValueError("groups has a tensor that is not one of the optimizer's parameters")
            grouped.add(id(parameter))
    return chosen + [[parameter] for parameter in parameters if id(parameter) not in grouped]


def DistributedOptimizer(optimizer: torch.optim.Optimizer,
                         named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
                         compression: Any = Compression.none, backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Groups = None,
                         sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> torch.optim.Optimizer:
    """Wraps an optimizer, whose state and parameters stay what they are: gradients are reduced over all ranks of the set as
    backward() computes them, and step() waits for them.

    Args:
        optimizer: the optimizer.
        named_parameters: model.named_parameters(); without it names are counted.
        compression: the Compression of the values that travel.
        backward_passes_per_step: the number of passes over which gradients are accumulated before they are reduced.
        op: Average, Sum or Adasum. With Adasum, every rank's optimizer makes its step by its own gradients, and step() reduces
            what the steps change; groups and sparse_as_dense then have no effect.
        gradient_predivide_factor: with op=Average, contributions are divided by it, and the sum by size / factor.
        num_groups: the old name of `groups`.
        groups: the number of groups of parameters that are reduced together, or lists of parameters.
        sparse_as_dense: sparse gradients are made dense first.
        process_set: the ranks that take part.

    Returns:
        The wrapped optimizer.

    Raises:
        ValueError: names or groups are wrong.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if groups is None and num_groups != 0:
        groups = num_groups
    parameters = parameters_of(optimizer)
    names = dict(zip(map(id, parameters), _names_of(parameters, named_parameters)))
    named = {parameter: names[id(parameter)] for parameter in parameters}
    places = {id(parameter): i for i, parameter in enumerate(parameters)}
    grouped = _grouped(parameters, groups)

    def wrap_alike(copied: torch.optim.Optimizer) -> torch.optim.Optimizer:
        own = parameters_of(copied)
        return DistributedOptimizer(copied, list(zip(named.values(), own)), compression, backward_passes_per_step, op,
                                    gradient_predivide_factor, 0, [[own[places[id(one)]] for one in group] for group in grouped],
                                    sparse_as_dense, process_set)

    if op == Adasum:
        return put_before(DistributedAdasum, optimizer, wrap_alike, named, _names=names, _compression=compression,
                          _process_set=process_set)
    settings = Settings(op, compression, 1.0 / gradient_predivide_factor, gradient_predivide_factor, process_set,
                        sparse_as_dense, takes_sparse_alone=isinstance(optimizer, torch.optim.SparseAdam))
    reducer = Reducer(settings, backward_passes_per_step)
    for group in grouped:
        reducer.add([names[id(parameter)] for parameter in group], group)

    return put_before(_Distributed, optimizer, wrap_alike, named, _reducer=reducer, _skips_synchronize=False,
                      _steps_when_ready=is_switched_on("RUEDA_TORCH_STEP_WHEN_READY", False))
